"""The gradients of one graph task, as they were measured at its nodes."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.measures import bad
from agviz.traces.rows import NodeStatus
from agviz.words.labels import of_owner
from agviz_engine.events import HookCalled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.traces.health import HealthRow
    from agviz.traces.reader import Trace
    from agviz.traces.rows import EdgeRow, Frame, GraphTaskRow, NodeRow

_CUSTOM: Final = re.compile(r"\w+Backward")
"""Nodes that torch generates have a number at the end."""
_AFTERWARDS: Final = "post_accumulate_grad"
_MOST_SINGLE: Final = 500
"""Nodes that are read one by one; when there are more, all are read."""
_MOST_NODES: Final = 20_000
"""Of a graph task of which all nodes are looked at."""


class GradientValue(Enum):
    """What a gradient was, as far as it is recorded."""

    NONE = auto()
    """Undefined: no gradient at all."""
    ZERO = auto()
    SOME = auto()
    UNKNOWN = auto()


class GradientFlow:
    """The gradients of one graph task, asked for node by node."""

    def __init__(self, trace: Trace, graph_task: int) -> None:
        self.trace = trace
        self.graph_task = graph_task
        self.nodes = trace.nodes(graph_task)
        self._is_measured = trace.meta.values != "none"
        self._health: dict[int, dict[tuple[str, int], HealthRow]] = {}
        self._is_all_read = False
        self._into: defaultdict[int, list[EdgeRow]] | None = None
        self._has_hooks_afterwards: bool | None = None
        self._bytes: dict[tuple[int, int], int] | None = None

    def health(self, node: int, role: str, slot: int) -> HealthRow | None:
        """What was measured there."""
        rows = self._health.get(node)
        if rows is None and not self._is_all_read and len(self._health) >= _MOST_SINGLE:
            self.read_all()
            rows = self._health.get(node)
        if rows is None and self._is_all_read:
            return None
        if rows is None:
            found = self.trace.health(self.graph_task, node)
            rows = self._health[node] = {(row.role, row.slot): row for row in found}
        return rows.get((role, slot))

    def read_all(self) -> None:
        """Read what was measured of all nodes, in one go."""
        for row in self.trace.health(self.graph_task):
            self._health.setdefault(row.node, {})[row.role, row.slot] = row
        self._is_all_read = True

    def edges_into(self, node: int) -> list[EdgeRow]:
        """The edges that lead into a node."""
        if self._into is None:
            self._into = defaultdict(list)
            for edge in self.trace.edges(self.graph_task):
                self._into[edge.consumer].append(edge)
        return self._into.get(node, [])

    def output(self, node: int, slot: int) -> tuple[GradientValue, HealthRow | None]:
        """What a node put out."""
        row = self.health(node, "output", slot)
        if row is None:
            is_known = self._is_measured and self.nodes[node].status is NodeStatus.DONE
            return (GradientValue.NONE if is_known else GradientValue.UNKNOWN), None
        return value_of(row), row

    def puts_out_any(self, node: int) -> bool:
        """Whether any output of a node is known to hold something else than zeros."""
        self.health(node, "output", 0)
        return any(
            role == "output" and value_of(row) is GradientValue.SOME
            for (role, _), row in self._health.get(node, {}).items()
        )

    def input(self, node: int, slot: int) -> tuple[GradientValue, HealthRow | None]:
        """What a node received."""
        row = self.health(node, "sum", slot) or self.health(node, "root", slot)
        if row is not None:
            return value_of(row), row
        if not self._is_measured:
            return (
                GradientValue.UNKNOWN if self._arrived(node, slot) else GradientValue.NONE
            ), None
        arrived = [
            self.output(edge.producer, edge.output)
            for edge in self.edges_into(node)
            if edge.slot == slot
        ]
        defined = [found for found in arrived if found[0] is not GradientValue.NONE]
        if not defined:
            return (GradientValue.NONE if arrived else GradientValue.UNKNOWN), None
        return defined[0] if len(defined) == 1 else (GradientValue.UNKNOWN, None)

    def inputs(self, node: int) -> list[tuple[GradientValue, HealthRow | None]]:
        """What a node received in the slots in which anything was to arrive."""
        slots = {edge.slot for edge in self.edges_into(node)}
        return [self.input(node, slot) for slot in sorted(slots or {0})]

    def gradient(self, leaf: int) -> tuple[GradientValue, HealthRow | None]:
        """What an AccumulateGrad node added to its variable's ``.grad``.

        Where that is zero or not finite afterwards, what it is.
        """
        value, row = self.input(leaf, 0)
        if value is GradientValue.SOME:
            after = self.health(leaf, "accumulated", 0) or self.health(leaf, "captured", 0)
            if after is not None and (bad(after) or value_of(after) is GradientValue.ZERO):
                return value_of(after), after
        return value, row

    def hooks(self, node: int) -> list[HookCalled]:
        """The hooks that were called for a node before or after its function."""
        return [event for event in self._hooks(node) if event.kind != _AFTERWARDS]

    def hook_afterwards(self, leaf: int) -> str:
        """Name of the first hook that ran after a leaf had accumulated its gradient, or empty."""
        if self._has_hooks_afterwards is None:
            times = self.trace.hook_times(self.graph_task)
            self._has_hooks_afterwards = any(row.kind == _AFTERWARDS for row in times)
        if not self._has_hooks_afterwards:
            return ""
        return next((event.name for event in self._hooks(leaf) if event.kind == _AFTERWARDS), "")

    def weights(self, node: int) -> Iterator[tuple[NodeRow, int]]:
        """Matrices that are leaves and that a node multiplies by, and how often each is used."""
        for edge in self.trace.edges_from(self.graph_task, node):
            leaf = self.nodes[edge.consumer]
            uses = leaf.dependencies
            if leaf.short_name == "TBackward0":
                (below,) = self.trace.edges_from(self.graph_task, leaf.index)
                leaf = self.nodes[below.consumer]
                uses = max(uses, leaf.dependencies)
            if leaf.is_leaf and len(leaf.shape or ()) == 2:
                yield leaf, uses

    def _hooks(self, node: int) -> list[HookCalled]:
        story = self.trace.story(self.graph_task, node)
        return [event for event in story if isinstance(event, HookCalled)]

    def _arrived(self, node: int, slot: int) -> int:
        if self._bytes is None:
            self._bytes = {
                (row.node, row.slot): row.nbytes for row in self.trace.arrivals(self.graph_task)
            }
        return self._bytes.get((node, slot), 0)


class GradientFactor(NamedTuple):
    """A node that makes a gradient many times larger."""

    frame: Frame
    name: str
    times: float


def largest_factor(trace: Trace, task: GraphTaskRow, least: float) -> GradientFactor | None:
    """The node that multiplies the gradient of a pass by most; None: none does by so much."""
    if task.nodes > _MOST_NODES:
        return None
    flow = GradientFlow(trace, task.id)
    flow.read_all()
    found: list[GradientFactor] = []
    for node in flow.nodes:
        if node.frame is None or len(node.input_shapes or ()) != 1:
            continue
        _, given = flow.input(node.index, 0)
        for slot in range(len(node.output_shapes)):
            _, gave = flow.output(node.index, slot)
            if given is not None and gave is not None and given.norm and gave.norm:
                times, name = gave.norm / given.norm, of_owner(node.short_name, node.module)
                if times >= least and math.isfinite(times):
                    found.append(GradientFactor(node.frame, name, times))
    return max(found, key=lambda one: one.times, default=None)


def is_custom(node: NodeRow) -> bool:
    """Whether it is of a custom Function: its derivative was written by hand."""
    return is_custom_name(node.short_name)


def is_custom_name(name: str) -> bool:
    """The same by the name of a node."""
    return _CUSTOM.fullmatch(name) is not None


def value_of(row: HealthRow) -> GradientValue:
    """What a gradient was of which this was measured."""
    if row.unknown:
        return GradientValue.UNKNOWN
    return GradientValue.ZERO if row.zero == row.numbers else GradientValue.SOME
