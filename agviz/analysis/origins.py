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

    from agviz.traces.nonfinite import Flow
    from agviz.traces.reader import Trace
    from agviz.traces.rows import GraphTaskRow


class Kind(StrEnum):
    """Of what a gradient became non-finite."""

    NODE = "node"
    """A node's outputs, though all it was given was finite."""
    SUM = "sum"
    """What several finite gradients came to."""
    ROOT = "root"
    """The gradient that the caller gave to backward or grad."""
    HOOK = "hook"
    """What a hook gave in place of finite gradients."""
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
    kind: Kind
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
        if flows:
            found[number] = _Gone(trace.graph_task(number), flows)
    if not found:
        return None
    reached = {
        (number, node)
        for number, gone in found.items()
        if gone.task.accumulate_grad
        for node in gone.received.intersection(trace.leaves(number))
    }
    return Spread(
        origins=tuple(sorted(_origins(found))),
        nodes=sum(len(gone.nodes) for gone in found.values()),
        leaves=tuple(sorted(reached)),
        captured=sum(
            gone.came_to(*place)
            for number, gone in found.items()
            if not gone.task.accumulate_grad
            for place in trace.captures(number)
        ),
    )


class _Gone:
    """Which ways non-finite gradients went in one graph task."""

    def __init__(self, task: GraphTaskRow, flows: list[Flow]) -> None:
        self.task = task
        self.flows = flows
        self.nodes = {flow.node for flow in flows if flow.role == "output"}
        self.along_edges = {
            (flow.consumer, flow.consumer_slot) for flow in flows if flow.consumer >= 0
        }
        others = {flow.node for flow in flows if flow.role != "output"}
        self.received = {node for node, _ in self.along_edges} | others
        """Nodes to which something non-finite came, or whose ``.grad`` is so."""
        self._inputs = self.along_edges | {
            (flow.node, flow.slot) for flow in flows if flow.role in {"sum", "root", "captured"}
        }
        self._given = {node for node, _ in self.along_edges} | {
            flow.node for flow in flows if flow.role in {"sum", "root", "hook"}
        }

    def origins(self) -> Iterator[Origin]:
        """Without regard to what runs inside a node, or around the graph task."""
        met = set()
        for flow in self.flows:
            origin = self._origin(flow)
            if origin is None or (origin.kind is Kind.NODE and origin.node in met):
                continue
            met.add(origin.node)
            yield origin

    def is_given(self, node: int) -> bool:
        """Whether some gradient that came to the node was non-finite."""
        return node in self._given

    def came_to(self, node: int, slot: int) -> bool:
        """Whether what came to an input of a node was non-finite, after its hooks."""
        return (node, slot) in self._inputs

    def _origin(self, flow: Flow) -> Origin | None:
        """What begins with ``flow``, or None."""
        kind = _KINDS[flow.role]
        if kind is Kind.NODE and flow.node == 0 and self.task.roots > 1:  # the GraphRoot
            if flow.consumer < 0:
                return None
            return Origin(flow.seq, self.task.id, flow.consumer, Kind.ROOT, flow.consumer_slot)
        is_new = {
            Kind.NODE: not self.is_given(flow.node),
            Kind.SUM: (flow.node, flow.slot) not in self.along_edges,
            Kind.ROOT: True,
            Kind.HOOK: True,
            Kind.ACCUMULATED: not self.is_given(flow.node),
            Kind.CAPTURED: not self.is_given(flow.node),
        }
        return Origin(flow.seq, self.task.id, flow.node, kind, flow.slot) if is_new[kind] else None


_KINDS: Final = {
    "output": Kind.NODE,
    "root": Kind.ROOT,
    "sum": Kind.SUM,
    "accumulated": Kind.ACCUMULATED,
    "captured": Kind.CAPTURED,
    "hook": Kind.HOOK,
}


def _origins(found: Mapping[int, _Gone]) -> Iterator[Origin]:
    inside = {(gone.task.parent, gone.task.parent_node) for gone in found.values()}
    for gone in found.values():
        around = found.get(gone.task.parent)
        came_in = around is not None and around.is_given(gone.task.parent_node)
        for origin in gone.origins():
            was_inside = origin.kind is Kind.NODE and (origin.graph_task, origin.node) in inside
            if not was_inside and not (came_in and origin.kind is Kind.ROOT):
                yield origin
