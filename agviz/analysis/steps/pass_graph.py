"""The graph of one pass, in which rules follow what a number was computed of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.analysis.measures import magnitude

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import EdgeRow, NodeRow

_PASSING: Final = ("Add", "Div", "Mul", "Neg", "Sub")


class PassGraph:
    """The nodes of a pass, what each leads to, and what leads to it."""

    def __init__(self, run: RunSteps, graph_task: int) -> None:
        self.run = run
        self.graph_task = graph_task
        self.nodes: Sequence[NodeRow] = run.trace.nodes(graph_task)
        self.below: dict[int, list[EdgeRow]] = {}
        self.above: dict[int, list[EdgeRow]] = {}
        for edge in run.trace.edges(graph_task):
            self.below.setdefault(edge.producer, []).append(edge)
            self.above.setdefault(edge.consumer, []).append(edge)

    def computed_of(self, node: int) -> set[int]:
        """The node and all nodes below it, but parameters."""
        found, waiting = {node}, [node]
        while waiting:
            for edge in self.below.get(waiting.pop(), ()):
                is_leaf = self.nodes[edge.consumer].name.endswith("AccumulateGrad")
                if edge.consumer not in found and not is_leaf:
                    found.add(edge.consumer)
                    waiting.append(edge.consumer)
        return found

    def scalars_below(self, node: int) -> Iterator[NodeRow]:
        """The nodes that made one number, and what of others, of which a number was computed."""
        waiting, seen = [node], set[int]()
        while waiting:
            here = self.nodes[waiting.pop()]
            if here.index in seen or came(here) not in {(), None}:
                continue
            seen.add(here.index)
            if here.name.startswith(_PASSING):
                waiting += [edge.consumer for edge in self.below.get(here.index, ())]
            else:
                yield here

    def weight(self, node: NodeRow) -> float:
        """The gradient that came to a node that made one number; 0: it was not measured."""
        for edge in self.above.get(node.index, ()):
            for row in self.run.trace.health(self.graph_task, edge.producer):
                if (row.role, row.slot, row.numel) == ("output", edge.output, 1):
                    return magnitude(row)
        return 1.0 if not self.above.get(node.index) else 0.0


def came(node: NodeRow) -> tuple[int, ...] | None:
    """The shape of the gradient that comes to a node: that of what its function gave."""
    return next(iter(node.input_shapes or ()), None)


def gave(node: NodeRow, slot: int) -> tuple[int, ...] | None:
    """The shape of what a node puts out there: that of what its function took."""
    shapes = node.output_shapes or ()
    return shapes[slot] if slot < len(shapes) else None
