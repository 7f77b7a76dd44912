"""Where two recordings of a backward pass part: nodes, edges, gradients, failures."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from agviz.analysis.alignment import NOWHERE, Adjacency, align
from agviz.analysis.comparing import Tolerance
from agviz.analysis.diff_rows import Change, Divergence, DivergenceKind, PassDiff
from agviz.analysis.diff_words import TraceDiff
from agviz.analysis.first_divergence import Causes, role_turn, turn
from agviz.analysis.measures import is_nonfinite
from agviz.analysis.pairs import PairComparison
from agviz.analysis.verdict import verdicts
from agviz.errors import AgvizError, TraceError
from agviz.traces.nodes import undisturbed
from agviz.words.shapes import write_shape

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.alignment import Alignment
    from agviz.analysis.pairs import Place
    from agviz.traces.health import HealthRow
    from agviz.traces.reader import Trace
    from agviz.traces.rows import GraphTaskRow, NodeRow
    from agviz.traces.values import ValueRow

_ALL: Final = 2**31 - 1
_MOST_DETAILED: Final = 10
"""Graph tasks that differ and of which everything is kept."""
_MOST_OF_OTHERS: Final = 10
"""Divergences and nodes that are kept of each further one."""


def diff(
    a: Trace,
    b: Trace,
    *,
    graph_tasks: tuple[int, int] | None = None,
    tolerance: Tolerance | None = None,
) -> TraceDiff:
    """Compare two traces.

    Graph tasks are aligned in order of creation, reentrant ones within the nodes that made them.

    Args:
        a: one trace.
        b: the other one.
        graph_tasks: compare only this graph task of A with that one of B, and the reentrant ones
            inside; None: all.
        tolerance: how far numbers may be apart; None: not at all.

    Raises:
        agviz.errors.AgvizError: the tolerance makes no sense.
        agviz.errors.TraceError: there is no such graph task, or a file is damaged.
    """
    tolerance = (tolerance or Tolerance()).checked()
    found = TraceDiff(a=a.path, b=b.path, tolerance=tolerance)
    if graph_tasks is None:
        outermost = tuple(_outermost(trace) for trace in (a, b))
    else:
        outermost = tuple([t.graph_task(n)] for t, n in zip((a, b), graph_tasks, strict=True))
    if not any(outermost):
        raise AgvizError(f"neither {a.path} nor {b.path} holds a backward pass")
    children = _children(a), _children(b)
    _compare_all(found, (a, b), outermost, children)
    for trace, wrong, number in zip((a, b), found.wrong, graph_tasks or (None, None), strict=True):
        wrong += [each.heading for each in verdicts(trace, number) if each.is_found]
    return found


_Children: TypeAlias = "dict[int, dict[int, list[GraphTaskRow]]]"
"""Reentrant graph tasks, by the graph task and the node that made them."""
_Pair: TypeAlias = "tuple[GraphTaskRow | None, GraphTaskRow | None, NodeRow | None]"
"""Graph tasks of A and B that are compared, and the node of A that made the former."""


def _outermost(trace: Trace) -> list[GraphTaskRow]:
    """Graph tasks that are in no other one of the trace: its beginning may not be recorded."""
    known = {task.id for task in trace.graph_tasks}
    return [t for t in trace.graph_tasks if t.parent not in known or t.parent >= t.id]


def _children(trace: Trace) -> _Children:
    found: _Children = {}
    for task in trace.graph_tasks.inside:
        if task.parent < task.id:
            found.setdefault(task.parent, {}).setdefault(task.parent_node, []).append(task)
    return found


def _compare_all(
    found: TraceDiff,
    traces: tuple[Trace, Trace],
    outermost: tuple[list[GraphTaskRow], ...],
    children: tuple[_Children, _Children],
) -> None:
    a, b = traces
    detailed = 0
    waiting: list[_Pair] = []
    waiting += ((task_a, task_b, None) for task_a, task_b in zip_longest(*outermost))
    waiting.reverse()
    while waiting:
        task_a, task_b, within = waiting.pop()
        if task_a is None or task_b is None:
            found.only_in_a.extend([task_a] if task_a else [])
            found.only_in_b.extend([task_b] if task_b else [])
            continue
        with undisturbed():
            sides = _Side(a, task_a), _Side(b, task_b)
            alignment = align(sides[0].graph, sides[1].graph)
            compared = _Comparison(sides, alignment, found.tolerance).compare(within)
        detailed += not compared.same
        found.passes.append(compared if detailed <= _MOST_DETAILED else _shortened(compared))
        inside = children[0].get(task_a.id, {}), children[1].get(task_b.id, {})
        waiting += list(_pairs_inside(sides[0].nodes, alignment, *inside))[::-1]
        for trace in traces:
            trace.forget()


def _pairs_inside(
    nodes: Sequence[NodeRow],
    alignment: Alignment,
    in_a: dict[int, list[GraphTaskRow]],
    in_b: dict[int, list[GraphTaskRow]],
) -> Iterator[_Pair]:
    """The reentrant graph tasks of nodes that are partners."""
    rest = dict(in_b)
    for node, tasks in in_a.items():
        known = 0 <= node < len(nodes)
        theirs = rest.pop(alignment.a_to_b[node], []) if known else []
        for pair in zip_longest(tasks, theirs):
            yield *pair, nodes[node] if known else None
    for tasks in rest.values():
        for task in tasks:
            yield None, task, None


def _shortened(compared: PassDiff) -> PassDiff:
    """With less to keep in memory."""
    names = "only_in_a", "only_in_b", "changes", "divergences", "reached"
    lists: dict[str, Any] = {name: getattr(compared, name)[:_MOST_OF_OTHERS] for name in names}
    return replace(compared, **lists)


class _Side:
    """One of two graph tasks that are compared."""

    def __init__(self, trace: Trace, task: GraphTaskRow) -> None:
        self.trace = trace
        self.task = task
        self.nodes = list(trace.nodes(task.id))
        self.graph = Adjacency(self.nodes, trace.edges(task.id))
        self.health: list[dict[Place, HealthRow]] = [{} for _ in self.nodes]
        for row in trace.health(task.id, limit=_ALL):
            if row.node >= len(self.nodes):
                raise TraceError(
                    f"{trace.path} is damaged (a gradient is of a node that is absent)"
                )
            self.health[row.node][row.role, row.slot] = row
        self.values: list[dict[Place, ValueRow]] = [{} for _ in self.nodes]
        for value in trace.values(task.id, limit=_ALL):
            if not value.unknown and value.node < len(self.nodes):
                self.values[value.node][value.role, value.slot] = value


class _Comparison:
    """Compares two graph tasks whose nodes are aligned."""

    def __init__(
        self, sides: tuple[_Side, _Side], alignment: Alignment, tolerance: Tolerance
    ) -> None:
        self._a, self._b = sides
        self._to_b, self._to_a = alignment.a_to_b, alignment.b_to_a
        self._pairs = PairComparison(
            (self._a.trace, self._b.trace), (self._a.task, self._b.task), tolerance
        )

    def compare(self, within: NodeRow | None) -> PassDiff:
        """Compare all; ``within``: the node of A that made the pass."""
        a, b, compared = self._a, self._b, self._pairs
        pairs = [
            (node, b.nodes[at]) for node, at in zip(a.nodes, self._to_b, strict=True) if at >= 0
        ]
        divergences = [
            divergence for node_a, node_b in pairs for divergence in self._node(node_a, node_b)
        ]
        only_in_a = [n for n, at in zip(a.nodes, self._to_b, strict=True) if at == NOWHERE]
        only_in_b = [n for n, at in zip(b.nodes, self._to_a, strict=True) if at == NOWHERE]
        divergences += [Divergence(DivergenceKind.ONLY, node, None) for node in only_in_a]
        divergences += [Divergence(DivergenceKind.ONLY, None, node) for node in only_in_b]
        orders = [node.order or 0 for node in a.nodes], [node.order or 0 for node in b.nodes]
        causes = Causes(a.graph, b.graph, self._to_a, orders)
        for each in divergences:
            causes.add(*each.indexes, each.role, each.slot)
        divergences = [
            each._replace(is_first=causes.is_first(*each.indexes, each.role))
            for each in sorted(
                divergences, key=lambda each: (*causes.turn(*each.indexes), *role_turn(each))
            )
        ]
        return PassDiff(
            a=a.task,
            b=b.task,
            within=within,
            level=compared.level,
            aligned=len(pairs),
            gradients=compared.gradients,
            elements=compared.by_elements,
            unknown=compared.unknown,
            only_in_a=sorted(only_in_a, key=turn),
            only_in_b=sorted(only_in_b, key=turn),
            changes=[change for pair in pairs for change in self._changes(*pair)],
            divergences=divergences,
            diverged=len({each.place for each in divergences}),
            reached=[
                *(node for node in sorted(a.nodes, key=turn) if causes.reaches_leaf(node.index)),
                *(node for node in only_in_b if node.is_leaf),
            ],
            leaves=sum(node.is_leaf for node in (*a.nodes, *only_in_b)),
            nonfinite=(_alone(a, b, self._to_b), _alone(b, a, self._to_a)),
            failure=compared.failure,
            other_order=self._other_order(pairs),
        )

    def _node(self, a: NodeRow, b: NodeRow) -> Iterator[Divergence]:
        """What diverges at a node that is in both graphs."""
        return self._pairs.divergences(
            (a, b),
            (self._a.health[a.index], self._b.health[b.index]),
            (self._a.values[a.index], self._b.values[b.index]),
        )

    def _changes(self, a: NodeRow, b: NodeRow) -> Iterator[Change]:
        """How differently a node is put together."""
        if a.num_inputs != b.num_inputs:
            yield Change(a, b, "number of inputs", str(a.num_inputs), str(b.num_inputs))
        if None not in {a.input_shapes, b.input_shapes} and a.input_shapes != b.input_shapes:
            yield Change(a, b, "shapes of inputs", _shapes(a), _shapes(b))
        edges_a, edges_b = (
            {output: (to, slot) for output, to, slot in side.graph.outgoing(node.index)}
            for side, node in ((self._a, a), (self._b, b))
        )
        for output in sorted({*edges_a, *edges_b}):
            of_a, of_b = edges_a.get(output), edges_b.get(output)
            translated = of_a and (self._to_b[of_a[0]], of_a[1])
            if translated != of_b:
                ends = _end(self._a, of_a), _end(self._b, of_b)
                yield Change(a, b, f"output {output} leads to", *ends)

    def _other_order(
        self, pairs: Sequence[tuple[NodeRow, NodeRow]]
    ) -> tuple[NodeRow, NodeRow] | None:
        ran = [pair for pair in pairs if pair[0].order is not None and pair[1].order is not None]
        by_a = sorted(ran, key=lambda pair: turn(pair[0]))
        by_b = sorted(ran, key=lambda pair: turn(pair[1]))
        return next(
            ((of_a[0], of_b[1]) for of_a, of_b in zip(by_a, by_b, strict=True) if of_a != of_b),
            None,
        )


def _alone(side: _Side, other: _Side, partners: Sequence[int]) -> NodeRow | None:
    """The first node to run whose outputs were not finite, though its partner's were."""
    found = [
        node
        for node, partner in zip(side.nodes, partners, strict=True)
        if is_nonfinite(node) and (partner == NOWHERE or not is_nonfinite(other.nodes[partner]))
    ]
    return min(found, key=turn, default=None)


def _shapes(node: NodeRow) -> str:
    return ", ".join(write_shape(shape) for shape in node.input_shapes or ())


def _end(side: _Side, to: tuple[int, int] | None) -> str:
    if to is None:
        return "nothing"
    node = side.nodes[to[0]]
    return f"input {to[1]} of {node.short_name} (node {node.index})"
