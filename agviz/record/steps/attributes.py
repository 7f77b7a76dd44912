"""Finding a tensor among the attributes of modules that are neither parameters nor modules.

What is in a plain list, tuple or dict, or is a plain tensor, is in no ``parameters()``.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, Final

from agviz.record.kinds import is_a

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from torch import Tensor
    from torch.nn import Module

_MOST_FLAGS: Final = 100
_MOST_ITEMS: Final = 1_000
"""Looked at in one list."""


def attribute_of(tensor: Tensor, modules: Sequence[tuple[str, Module]]) -> str:
    """Where a tensor is, like ``blocks[0].weight``; empty where no attribute leads to it.

    Args:
        tensor: the tensor.
        modules: outermost ones, each with what names of its parameters begin with.
    """
    for label, root in modules:
        for path, module in root.named_modules():
            for name, value in list(vars(module).items()):
                if name.startswith("_"):  # torch's own, or none of the user's business
                    continue
                for where in _places(tensor, value):
                    return ".".join(filter(None, [label, path, name + where]))
    return ""


def module_flags(modules: Sequence[tuple[str, Module]]) -> list[tuple[str, bool]]:
    """Modules with an attribute ``requires_grad`` that none of their parameters follows.

    Args:
        modules: as above.
    """
    found: list[tuple[str, bool]] = []
    for label, root in modules:
        for path, module in root.named_modules():
            flag = vars(module).get("requires_grad")
            if type(flag) is bool and len(found) < _MOST_FLAGS:
                wants = {one.requires_grad for one in module.parameters()}
                if wants == {not flag}:
                    found.append((".".join(filter(None, [label, path])), flag))
    return found


def repeated_modules(modules: Sequence[tuple[str, Module]]) -> list[tuple[str, int, str]]:
    """Containers that hold one module with parameters several times: path, how often, first name.

    Args:
        modules: as above.
    """
    from torch.nn import ModuleList, Sequential

    found: list[tuple[str, int, str]] = []
    for label, root in modules:
        for path, module in root.named_modules():
            if not is_a(module, ModuleList, Sequential) or len(found) >= _MOST_FLAGS:
                continue
            names: dict[int, list[str]] = {}
            children = {id(child): child for child in module._modules.values()}
            for name, child in module._modules.items():
                names.setdefault(id(child), []).append(name)
            for identity, own in names.items():
                child = children[identity]
                if len(own) > 1 and child is not None and any(True for _ in child.parameters()):
                    found.append((".".join(filter(None, [label, path])), len(own), own[0]))
    return found


def _places(tensor: Tensor, value: Any) -> Iterator[str]:
    """Where it is in an attribute, as Python writes it behind the attribute's name."""
    from torch.nn import Module

    items: list[tuple[str, Any]] = []
    # What a class of the program has in place of these methods is not called.
    if is_a(value, list, tuple):
        kind: Any = list if is_a(value, list) else tuple
        some = itertools.islice(kind.__iter__(value), _MOST_ITEMS)
        items = [(f"[{number}]", item) for number, item in enumerate(some)]
    elif is_a(value, dict):
        pairs = itertools.islice(dict.items(value), _MOST_ITEMS)
        items = [(f"[{key!r}]", item) for key, item in pairs if type(key) in {str, int}]
    for place, item in [("", value), *items]:
        if item is tensor:
            yield place
        elif place and is_a(item, Module):
            yield from (f"{place}.{name}" for name in _names(tensor, item))


def _names(tensor: Tensor, module: Module) -> Iterator[str]:
    return (name for name, one in module.named_parameters() if one is tensor)
