"""Hooks that were registered on a tensor more than once."""

from __future__ import annotations

from types import FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor


class RepeatedHook(NamedTuple):
    """Functions that do the same, registered as hooks of one tensor."""

    tensor: Tensor
    functions: tuple[FunctionType, ...]


def repeated_hooks(nodes: Iterable[Any]) -> list[RepeatedHook]:
    """The hooks of leaves among ``nodes`` of which there are several alike."""
    found = []
    for node in nodes:
        leaf = getattr(node, "variable", None)
        if leaf is None or not leaf._backward_hooks or len(leaf._backward_hooks) < 2:
            continue
        alike: dict[Any, list[FunctionType]] = {}
        for hook in leaf._backward_hooks.values():
            if isinstance(hook, FunctionType):
                alike.setdefault(_what_it_does(hook), []).append(hook)
        found += [RepeatedHook(leaf, tuple(each)) for each in alike.values() if len(each) > 1]
    return found


def _what_it_does(hook: FunctionType) -> Any:
    """Equal for functions of equal code that see the very same objects."""
    code = hook.__code__
    cells = tuple(id(cell.cell_contents) for cell in hook.__closure__ or ())
    defaults = tuple(map(id, hook.__defaults__ or ()))
    return code.co_code, repr(code.co_consts), code.co_names, cells, defaults
