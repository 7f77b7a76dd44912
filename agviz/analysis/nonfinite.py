"""Where NaN and infinities began in a backward pass, and which parameters they reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from agviz.traces.reader import Trace
    from agviz.traces.rows import NodeRow, NonFiniteRow


_ALL = 2**31 - 1


class Spread(NamedTuple):
    """How non-finite gradients spread through one graph task."""

    first: NonFiniteRow
    nodes: int
    """Number of nodes with a non-finite output."""
    reached: list[NodeRow]
    """The AccumulateGrad nodes that received a non-finite gradient, by index."""
    leaves: int
    """Number of AccumulateGrad nodes in the graph task."""


def spread(trace: Trace, graph_task: int) -> Spread | None:
    """How non-finite gradients spread through ``graph_task``; None where there were none.

    Raises TraceError where the file is damaged.
    """
    first = trace.first_nonfinite(graph_task)
    if first is None:
        return None
    nodes, edges = trace.nodes(graph_task), trace.edges(graph_task)
    found = trace.nonfinite(graph_task, limit=_ALL)
    outputs = {(row.node, row.output) for row in found}
    reached = {
        edge.consumer
        for edge in edges
        if (edge.producer, edge.output) in outputs and nodes[edge.consumer].is_leaf
    }
    return Spread(
        first=first,
        nodes=len({row.node for row in found}),
        reached=[nodes[index] for index in sorted(reached)],
        leaves=sum(node.is_leaf for node in nodes),
    )
