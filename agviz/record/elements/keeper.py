"""Keeps which elements began it, where a node or a function of the forward broke something.

Nothing is done where all is finite. Where something is not, a few places of a backward pass are
looked at, and of the forward before it, in so many passes.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from torch.nn import RNNBase

from agviz.measure.health import unseen
from agviz.record.elements import finding
from agviz.traces.elements import NO_NODE, NO_OP, AxesNote, AxisRow, LocatedElements
from agviz_engine.errors import comes_from_outside
from agviz_engine.events import NO_GRAPH_TASK

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from agviz.record.elements.finding import Found
    from agviz.record.elements.walk import AxisNote, Walk
    from agviz.record.names import Names
    from agviz_engine.node import NodeRef

log = logging.getLogger("agviz")

_MOST_IN_PASS: Final = 8
"""Nodes of a backward pass; and as many torch functions of the forward before it."""
_MOST_PASSES: Final = 32


class ElementKeeper:
    """Says where what is not finite is; any thread may call, and nothing raises.

    Args:
        names: where modules and their data come from.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._passes = 0
        self._left = _MOST_IN_PASS
        self._left_of_forward = _MOST_IN_PASS

    def begun(self) -> None:
        """A backward pass begins that no other is in."""
        if min(self._left, self._left_of_forward) < _MOST_IN_PASS:
            self._passes += 1
        is_over = self._passes >= _MOST_PASSES
        self._left = self._left_of_forward = 0 if is_over else _MOST_IN_PASS

    def of_node(
        self, graph_task: int, ref: NodeRef, outputs: Sequence[Tensor | None]
    ) -> LocatedElements | None:
        """Where what a node put out is not finite, though all that it was given was."""
        if self._left <= 0:
            return None
        self._left -= 1
        try:
            return self._of_node(graph_task, ref, outputs)
        except Exception as error:
            if comes_from_outside(error):
                raise
            log.debug("which elements are not finite is not recorded", exc_info=True)
            return None

    def of_largest(
        self, graph_task: int, ref: NodeRef, output: int, gradient: Tensor
    ) -> LocatedElements | None:
        """Where the element of the largest magnitude is of what a node put out, and that element.

        None where it is not finite, can't be looked at, or is one of all that are alike.
        """
        try:
            with unseen():
                found = finding.largest(gradient)
                if found is None:
                    return None
                walk = self._walk()
                walk.follow(_edge(ref, output), found[0].first)
            return _located((graph_task, ref.index, NO_OP, output), found[0], walk.notes, found[1])
        except Exception as error:
            if comes_from_outside(error):
                raise
            log.debug("which element is largest is not recorded", exc_info=True)
            return None

    def of_function(
        self, op: int, number: int, tensor: Tensor, function: Any, *, nan_only: bool
    ) -> LocatedElements | None:
        """Where a tensor that a torch function gave, or was given, is not finite.

        Args:
            op: number of the call.
            number: of the tensor, among its inputs and outputs.
            tensor: that.
            function: the node of what the function gave, where the tensor is what it was given and
                no function gave that; else None.
            nan_only: infinities do not count.
        """
        if self._left_of_forward <= 0:
            return None
        self._left_of_forward -= 1
        try:
            with unseen():
                found = finding.nonfinite(tensor, nan_only=nan_only)
                if found is None:
                    return None
                walk = self._walk()
                if tensor.grad_fn is not None:
                    walk.follow((tensor.grad_fn, tensor.output_nr), found.first)
                else:
                    walk.look_at_data(tensor, found.first, function)
            place = NO_GRAPH_TASK, NO_NODE, op, number
            return _located(place, found, walk.notes)
        except Exception as error:
            if comes_from_outside(error):
                raise
            log.debug("which elements are not finite is not recorded", exc_info=True)
            return None

    def _of_node(
        self, graph_task: int, ref: NodeRef, outputs: Sequence[Tensor | None]
    ) -> LocatedElements | None:
        bad: list[tuple[bool, float, int, Found]] = []
        with unseen():
            for slot, output in enumerate(outputs):
                found = None if output is None else finding.nonfinite(output)
                if found is not None and output is not None:
                    node, _ = _edge(ref, slot)
                    is_leaf = node is None or node.name().endswith("AccumulateGrad")
                    bad.append((is_leaf, found.total / output.numel(), slot, found))
            if not bad:
                return None
            _, _, slot, found = min(bad, key=lambda each: each[:3])
            walk = self._walk()
            walk.follow(_edge(ref, slot), found.first)
        return _located((graph_task, ref.index, NO_OP, slot), found, walk.notes)

    def _walk(self) -> Walk:
        from agviz.record.elements.walk import Modules, Walk

        found: dict[str, bool] = {}
        recurrent = set()
        for label, root in self._names.roots():
            for path, module in root.named_modules():
                is_first = getattr(module, "batch_first", None)
                if isinstance(is_first, bool):
                    name = ".".join(filter(None, (label, path)))
                    found[name] = is_first
                    if isinstance(module, RNNBase):
                        recurrent.add(name)
        modules = Modules(found, frozenset(recurrent), self._names.module)
        return Walk(self._names.given(), modules)


def _edge(ref: NodeRef, output: int) -> tuple[Any, int]:
    """Where an output of a node goes to: the function that gave the operand, or None."""
    edges: tuple[tuple[Any, int], ...] = ref.node.next_functions
    return edges[output] if output < len(edges) else (None, 0)


def _located(
    place: tuple[int, int, int, int],
    found: Found,
    notes: Sequence[AxisNote],
    value: float | None = None,
) -> LocatedElements:
    from agviz.record.elements.walk import AxisNote

    everything = [
        AxisNote("first", "", (), found.first),
        AxisNote("all", "", (), found.all),
        *notes,
    ]
    return LocatedElements(*place, found.total, value, tuple(map(_note, everything)))


def _note(note: AxisNote) -> AxesNote:
    roles = (*note.roles, *[""] * (len(note.box) - len(note.roles)))
    axes = zip(roles, note.box, strict=True)
    rows = tuple(AxisRow(role, axis.size, axis.at, axis.origin) for role, axis in axes)
    return AxesNote(note.what, note.name, rows)
