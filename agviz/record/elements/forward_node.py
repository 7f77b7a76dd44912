"""A function of the forward, as its autograd node shows it: operands, sizes, what it had saved."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING, Any, Final, cast

from torch import Tensor

from agviz.measure.saved_tensors import raw_saved
from agviz_engine.node import ACCUMULATE_GRAD_SEQUENCE_NR, FUNCTION_BASE

if TYPE_CHECKING:
    from collections.abc import Sequence

_NAME: Final = re.compile(r"Backward\d*(_copy)?$")
_NEGATIVE: Final = 2**63
"""From here on, torch gave a negative ``int64_t`` as if it were unsigned."""


class ForwardNode:
    """What is asked of a node. Nothing is unpacked, and no hook of the program is called."""

    def __init__(self, node: Any) -> None:
        self.node = node
        self.full_name: str = node.name()
        self.name = _NAME.sub("", self.full_name)
        """Without ``Backward0``."""
        self.operands: tuple[tuple[Any, int], ...] = node.next_functions
        """The nodes of the differentiable operands, and which of their outputs; None: no gradient
        goes there."""

    @property
    def is_leaf(self) -> bool:
        """Whether it is the AccumulateGrad of a leaf."""
        return self.full_name.endswith("AccumulateGrad")

    @property
    def is_of_program(self) -> bool:
        """Whether the program wrote its backward."""
        return isinstance(self.node, FUNCTION_BASE)

    @property
    def number(self) -> int:
        """Its sequence number: higher than those of the nodes it was made of; -1: a leaf's."""
        number: int = self.node._sequence_nr()
        return -1 if number == ACCUMULATE_GRAD_SEQUENCE_NR else number

    def edge(self, operand: int | str) -> tuple[Any, int]:
        """The node of an operand and which of its outputs that is; None: no gradient goes there."""
        is_one = isinstance(operand, int) and operand < len(self.operands)
        return self.operands[int(operand)] if is_one else (None, 0)

    def sizes(self, operand: int) -> tuple[int, ...] | None:
        """Shape of a differentiable operand; None: not known."""
        if operand >= len(self.operands):
            return None
        node, slot = self.operands[operand]
        return None if node is None else given_sizes(node, slot)

    def value(self, name: str) -> Any:
        """What it saved that is no tensor; None: nothing by that name."""
        try:
            value = getattr(self.node, f"_saved_{name}", None)
        except RuntimeError:
            return None
        if isinstance(value, tuple | list):
            return tuple(map(_signed, value))
        return _signed(value)

    def tensor(self, name: str) -> Tensor | None:
        """A tensor that it saved; None: there is none, or a hook of the program packed it."""
        found = self.tensors(name)
        return found[0] if found else None

    def tensors(self, name: str) -> list[Tensor | None]:
        """The tensors that it saved under one name."""
        attribute = f"_raw_saved_{name}"
        if not hasattr(type(self.node), attribute):
            return []
        try:
            raw = raw_saved(self.node, attribute)
        except RuntimeError:  # released
            return []
        found: list[Tensor | None] = []
        for one in raw if isinstance(raw, tuple | list) else [raw]:
            data = one.data if one is not None and one.unpack_hook is None else None
            found.append(data if isinstance(data, Tensor) else None)
        return found

    @property
    def is_packed(self) -> bool:
        """Whether a hook of the program has packed something that it saved, or it is released."""
        for attribute in dir(type(self.node)):
            if attribute.startswith("_raw_saved_"):
                try:
                    raw = raw_saved(self.node, attribute)
                except RuntimeError:
                    return True
                for one in raw if isinstance(raw, tuple | list) else [raw]:
                    if one is not None and one.unpack_hook is not None:
                        return True
        return False


def given_sizes(node: Any, slot: int) -> tuple[int, ...] | None:
    """Shape of what a function gave as its output ``slot``; None: not known."""
    with contextlib.suppress(AttributeError, IndexError, RuntimeError, TypeError):
        return integers(node._input_metadata[slot].shape)
    return None


def integers(shape: Sequence[Any]) -> tuple[int, ...] | None:
    """A shape; None where some size is symbolic."""
    sizes = tuple(shape)
    return cast("tuple[int, ...]", sizes) if all(type(size) is int for size in sizes) else None


def _signed(value: Any) -> Any:
    return value - 2 * _NEGATIVE if type(value) is int and value >= _NEGATIVE else value
