"""Where NaN and infinities began in a backward pass, in causal order, and what they reached.

Note [Causal order]
A gradient is measured before it is handed on, so the order of ``seq`` contains the causal one, with
any number of device threads. What is non-finite is an origin where nothing of what it was made of
was non-finite: a node all of whose incoming gradients were finite, a sum of finite gradients, a
gradient that came from the caller or from a hook, or a ``.grad`` to which a finite gradient was
added. In a node that calls backward itself (reentrant backward), the origin is in the graph task
inside.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agviz.traces.nonfinite import Flows
    from agviz.traces.reader import Trace
    from agviz.traces.rows import GraphTaskRow


class OriginKind(StrEnum):
    """Of what a gradient became non-finite."""

    NODE = "node"
    """A node's outputs, though all it was given was finite."""
    SUM = "sum"
    """What several finite gradients came to."""
    ROOT = "root"
    """The gradient that the caller gave to backward or grad."""
    HOOK = "hook"
    """What a hook gave in place of finite gradients."""
    REPLACED = "replaced"
    """What an instrument, like the debugger, had a node given in place of finite gradients."""
    ACCUMULATED = "accumulated"
    """``.grad`` after a finite gradient was added to it."""
    CAPTURED = "captured"
    """A result of ``grad``, taken from finite gradients."""


class Origin(NamedTuple):
    """Where a non-finite gradient began."""

    seq: int
    """Of the event in which it flowed first."""
    graph_task: int
    node: int
    """The node that put it out, or that received it (all kinds but ``node``)."""
    kind: OriginKind
    slot: int
    """Of the output, or of the input."""


class Spread(NamedTuple):
    """How non-finite gradients began, and how they spread, through a call of backward or grad."""

    origins: tuple[Origin, ...]
    """In the order in which they were measured, at least one."""
    nodes: int
    """Number of nodes with a non-finite output."""
    leaves: tuple[tuple[int, int], ...]
    """Graph task and index of each AccumulateGrad that received a non-finite gradient, or whose
    ``.grad`` became so."""
    captured: int
    """Number of results of ``grad`` that are non-finite."""

    @property
    def first(self) -> Origin:
        """The origin that was measured first."""
        return self.origins[0]


def spread(trace: Trace, graph_task: int) -> Spread | None:
    """How non-finite gradients went through ``graph_task`` and the reentrant ones inside it.

    None where there were none; only what was measured counts.

    Raises:
        agviz.errors.TraceError: there is no such graph task, or the file is damaged.
    """
    found: dict[int, _Gone] = {}
    for number in trace.family(graph_task):
        flows = trace.nonfinite_flows(number)
        if flows.outputs or flows.others:
            found[number] = _Gone(trace.graph_task(number), flows)
    if not found:
        return None
    origins = tuple(sorted(_origins(found)))
    if not origins:
        raise trace.damaged("non-finite gradients begin nowhere")
    reached = {
        (number, node)
        for number, gone in found.items()
        if gone.task.accumulate_grad
        for node in trace.leaves(number)
        if gone.came_to(node)
    }
    return Spread(
        origins=origins,
        nodes=sum(len(gone.nodes) for gone in found.values()),
        leaves=tuple(sorted(reached)),
        captured=sum(
            gone.came_to_slot(*place)
            for number, gone in found.items()
            if not gone.task.accumulate_grad
            for place in trace.captures(number)
        ),
    )


class _Gone:
    """Which ways non-finite gradients went in one graph task."""

    def __init__(self, task: GraphTaskRow, flows: Flows) -> None:
        self.task = task
        self._flows = flows
        _, nodes, _, consumers, slots = zip(*flows.outputs, strict=True) if flows.outputs else _NONE
        self.nodes = set(nodes)
        self._along_edges = set(zip(consumers, slots, strict=True))
        incoming = {flow.node for flow in flows.others if flow.role in _INCOMING}
        self._given = {*consumers, *incoming}
        self._changed = {flow.node for flow in flows.others}

    def is_given(self, node: int) -> bool:
        """Whether some gradient that came to the node was non-finite."""
        return node in self._given

    def came_to(self, node: int) -> bool:
        """The same, or that its ``.grad`` became so."""
        return node in self._given or node in self._changed

    def came_to_slot(self, node: int, slot: int) -> bool:
        """Whether what came to one input was non-finite, after its hooks."""
        return (node, slot) in self._along_edges or any(
            (flow.node, flow.slot) == (node, slot) for flow in self._flows.others
        )

    def origins(self) -> Iterator[Origin]:
        """Without regard to what runs inside a node, or around the graph task."""
        has_root = self.task.roots > 1  # node 0 is the GraphRoot
        of_nodes = self.nodes - self._given
        met = set()
        for seq, node, output, consumer, slot in self._flows.outputs if of_nodes else ():
            if node in of_nodes:
                if node == 0 and has_root:
                    if consumer >= 0:
                        yield Origin(seq, self.task.id, consumer, OriginKind.ROOT, slot)
                elif node not in met:
                    met.add(node)
                    yield Origin(seq, self.task.id, node, OriginKind.NODE, output)
        for flow in self._flows.others:
            kind = OriginKind(flow.role)
            is_new = True
            if kind in {OriginKind.SUM, OriginKind.REPLACED}:
                is_new = (flow.node, flow.slot) not in self._along_edges
            elif kind in {OriginKind.ACCUMULATED, OriginKind.CAPTURED}:
                is_new = not self.is_given(flow.node)
            if is_new:
                yield Origin(flow.seq, self.task.id, flow.node, kind, flow.slot)


_INCOMING: Final = frozenset({"sum", "root", "hook", "replaced"})
"""Roles of what came to a node and no node put out."""
_NONE: Final[tuple[tuple[int, ...], ...]] = ((), (), (), (), ())


def _origins(found: Mapping[int, _Gone]) -> Iterator[Origin]:
    inside = {(gone.task.parent, gone.task.parent_node) for gone in found.values()}
    for gone in found.values():
        around = found.get(gone.task.parent)
        came_in = around is not None and around.is_given(gone.task.parent_node)
        for origin in gone.origins():
            was_inside = (
                origin.kind is OriginKind.NODE and (origin.graph_task, origin.node) in inside
            )
            if not was_inside and not (came_in and origin.kind is OriginKind.ROOT):
                yield origin
