"""Writes to what a function gave that autograd does not record: their derivative is left out.

Note [What a write leaves out]
Through ``.data``, a detached alias or under ``no_grad``, the values of a tensor change and its node
stays: what follows is computed of the new values, and gradients pass the write as if it were not
there. That is so for what adds a constant, and meant for what rounds or clamps (a straight-through
estimator); never for what multiplies or bends: the gradient lacks its factor.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from agviz.check.saved import made_by
from agviz.record.arguments import tensors_given, tensors_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, MutableMapping, Sequence

_KEY: Final = "agviz.check.unrecorded_write"
"""Under which a node's ``metadata`` has the write to what it was given."""
_ALIASES: Final = frozenset({"data.__get__", "detach"})
_BENDING: Final = frozenset(
    {
        *("div", "divide", "exp", "idiv", "imul", "ipow", "itruediv", "log", "mul", "multiply"),
        *("neg", "pow", "reciprocal", "rsqrt", "sigmoid", "sqrt", "square", "tanh", "true_divide"),
    }
)
_MOST: Final = 1_000
"""Writes that are kept: each pass makes them again."""


class UnrecordedWrite(NamedTuple):
    """A write that changed the values of what a function gave, and that has no node."""

    captured: Any
    """The stack of the write."""
    function: str
    node: str
    """The name of the node that made what was written to."""


class UnrecordedWrites:
    """Follows what was written to into losses."""

    def __init__(self) -> None:
        self.found: list[UnrecordedWrite] = []
        self._aliases: MutableMapping[Tensor, weakref.ref[Tensor]] = WeakTensorKeyDictionary()
        self._written: MutableMapping[Tensor, UnrecordedWrite] = WeakTensorKeyDictionary()

    def called(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, captured: Any
    ) -> None:
        """A torch function has given ``result``."""
        tensor = args[0] if args else None
        if not isinstance(tensor, Tensor):
            return
        if made_by(tensor) is not None and name.removeprefix("Tensor.") in _ALIASES:
            if isinstance(result, Tensor):
                self._aliases[result] = weakref.ref(tensor)
        elif _written(name) in _BENDING:
            self._wrote(tensor, _written(name), captured)
        if not self._written or not torch.is_grad_enabled():
            return
        node = next((made_by(each) for _, each in tensors_given(result)), None)
        known = (self._written.get(each) for _, each in tensors_of(tuple(args), dict(kwargs)))
        write = next(filter(None, known), None)
        if node is not None and write is not None:
            node.metadata[_KEY] = write

    def _wrote(self, tensor: Tensor, function: str, captured: Any) -> None:
        alias = self._aliases.get(tensor)
        target = alias() if alias is not None else None if torch.is_grad_enabled() else tensor
        node = None if target is None else made_by(target)
        if target is not None and node is not None:
            self._written[target] = UnrecordedWrite(captured, function, node.name())

    def backward_begins(self, nodes: Iterable[Any]) -> None:
        """A call of backward or grad is about to run these nodes."""
        for node in nodes if self._written else ():
            write = getattr(node, "metadata", {}).pop(_KEY, None)
            if isinstance(write, UnrecordedWrite) and len(self.found) < _MOST:
                self.found.append(write)


def _written(name: str) -> str:
    """``div`` of ``Tensor.div_``, ``itruediv`` of ``Tensor.__itruediv__``; empty: none in place."""
    last = name.rpartition(".")[2]
    if last.startswith("__i") and last.endswith("__"):
        return last.strip("_")
    return last.removesuffix("_") if last.endswith("_") and not last.startswith("_") else ""
