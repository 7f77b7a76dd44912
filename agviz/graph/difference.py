"""One recording laid over another: a graph with the nodes of both, and how they differ."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agviz.analysis import alignment, diff_words
from agviz.analysis.default_pass import default_pass, outermost
from agviz.analysis.diff import diff
from agviz.analysis.diff_rows import DivergenceKind
from agviz.graph.model import Difference, Differs, build_graph
from agviz.words.safe import clean

if TYPE_CHECKING:
    from agviz.analysis.diff_rows import Divergence, PassDiff
    from agviz.graph.model import TaskGraph
    from agviz.traces.reader import Trace
    from agviz.traces.rows import EdgeRow, NodeRow

_END = (-1, -1)


def lay_over(graph: TaskGraph, trace: Trace, other: Trace) -> TaskGraph:
    """A graph with what only ``other`` has, and marks where the two differ.

    The graph task of ``other`` that came at the same place as this one is compared; where it has
    none, the one that somebody most likely wants to see.

    Args:
        graph: a graph task of ``trace``, whole.
        trace: A.
        other: B.

    Raises:
        agviz.errors.TraceError: B holds no backward pass, or a file is damaged.
    """
    own = graph.task.id
    theirs = _counterpart(trace, own, other)
    found = diff(trace, other, graph_tasks=(own, theirs))
    compared = next(each for each in found.passes if (each.a.id, each.b.id) == (own, theirs))
    rows, edges = list(trace.nodes(own)), trace.edges(own)
    rows_there, edges_there = list(other.nodes(theirs)), other.edges(theirs)
    aligned = alignment.align(
        alignment.Adjacency(rows, edges), alignment.Adjacency(rows_there, edges_there)
    )
    place = list(aligned.b_to_a)
    for index, partner in enumerate(place):
        if partner == alignment.NOWHERE:
            place[index] = len(rows)
            rows.append(_foreign(rows_there[index], place[index], own))
    moved = [
        edge._replace(producer=place[edge.producer], consumer=place[edge.consumer])
        for edge in edges_there
    ]
    merged, differing = _merged(edges, moved)
    both = build_graph(
        graph.task,
        rows,
        merged,
        trace.threads,
        first_nonfinite=graph.first_nonfinite,
        title=graph.title,
        marks=graph.marks,
    )
    nodes, about = _nodes(compared, place)
    return replace(
        both,
        difference=Difference(
            other=clean(str(other.path)).replace("\\", "/").rpartition("/")[2],
            nodes=nodes,
            edges=differing,
            about=about,
            summary=tuple(str(found).splitlines()),
        ),
    )


def _counterpart(trace: Trace, graph_task: int, other: Trace) -> int:
    own = trace.graph_task(graph_task)
    alike = [
        [
            task.id
            for task in each.graph_tasks
            if (task.reentrant_depth, task.traced) == (own.reentrant_depth, own.traced)
        ]
        for each in (trace, other)
    ]
    turn = alike[0].index(graph_task)
    if turn < len(alike[1]) and other.graph_task(alike[1][turn]).nodes:
        return alike[1][turn]
    return outermost(other.graph_tasks, default_pass(other))


def _foreign(row: NodeRow, index: int, graph_task: int) -> NodeRow:
    """A node of the other graph as one of this: its turn and thread are not those of this one."""
    return replace(
        row,
        graph_task=graph_task,
        index=index,
        order=None,
        thread=None,
        start_ns=None,
        end_ns=None,
        nonfinite=None,
    )


def _merged(
    edges: list[EdgeRow], moved: list[EdgeRow]
) -> tuple[list[EdgeRow], dict[tuple[int, int], Differs]]:
    """The edges of both, and which of them only one has.

    An output that leads to two places, one in each graph, gets a number of its own for the other.
    """
    here = {(edge.producer, edge.output): (edge.consumer, edge.slot) for edge in edges}
    there = {(edge.producer, edge.output): (edge.consumer, edge.slot) for edge in moved}
    taken: dict[int, int] = {}
    for edge in (*edges, *moved):
        taken[edge.producer] = max(taken.get(edge.producer, 0), edge.output + 1)
    merged = list(edges)
    differing = {at: Differs.ONLY_HERE for at, end in here.items() if there.get(at, _END) != end}
    for edge in moved:
        at = edge.producer, edge.output
        if here.get(at, _END) == (edge.consumer, edge.slot):
            continue
        if at in here:
            edge = edge._replace(output=taken[edge.producer])  # noqa: PLW2901
            taken[edge.producer] += 1
        merged.append(edge)
        differing[edge.producer, edge.output] = Differs.ONLY_THERE
    return merged, differing


def _nodes(compared: PassDiff, place: list[int]) -> tuple[dict[int, Differs], dict[int, str]]:
    kinds: dict[int, Differs] = {}
    about: dict[int, str] = {}
    for each in compared.divergences:
        if each.a is not None:
            index = each.a.index
        elif each.b is not None:
            index = place[each.b.index]
        kind = _kind(each)
        if kinds.get(index) is not Differs.FIRST:
            kinds[index] = kind
        about.setdefault(index, _words(each))
    return kinds, about


def _kind(divergence: Divergence) -> Differs:
    if divergence.a is None:
        return Differs.ONLY_THERE
    if divergence.b is None:
        return Differs.ONLY_HERE
    return Differs.FIRST if divergence.is_first else Differs.AFTERWARDS


def _words(divergence: Divergence) -> str:
    a, b = divergence.a, divergence.b
    if a is None or b is None:
        return f"only in {'A' if b is None else 'B'}"
    if divergence.kind in {DivergenceKind.RAN, DivergenceKind.FAILED}:
        return f"{a.status} in A, {b.status} in B"
    if divergence.kind is DivergenceKind.ABSENT:
        return f"undefined in {'A' if divergence.health_a is None else 'B'}"
    return diff_words.numbers(divergence)
