"""Where the graph of a backward pass leads into the graph of an earlier one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agviz.analysis.place import made_at, place
from agviz.traces.rows import NodeStatus

if TYPE_CHECKING:
    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame, NodeRow


def called_at(trace: Trace, graph_task: int) -> Frame | None:
    """The line that called a backward pass; None where it was not recorded."""
    site = trace.call_site(graph_task)
    return site[-1] if site and not site[-1].hidden else None


def earlier_passes(trace: Trace, graph_task: int, node: NodeRow, *, keep_graph: bool) -> list[int]:
    """The graph tasks that ran the very node before, and kept their graph or not; first ones first.

    Threads that do the same give their nodes the same numbers: those that were called by the same
    thread are more likely to be meant, and come before others.
    """
    failed = trace.graph_task(graph_task)
    found = []
    for earlier, index in trace.same_nodes(graph_task, node.index):
        other, task = trace.node(earlier, index), trace.graph_task(earlier)
        is_over = other.status is NodeStatus.DONE and task.keep_graph == keep_graph
        if is_over and other.stack == node.stack and task.begin_seq < failed.begin_seq:
            found.append(task)
    found.sort(key=lambda task: (task.thread != failed.thread, task.begin_seq))
    return [task.id for task in found]


def shared_nodes(trace: Trace, graph_task: int, first: int) -> set[int]:
    """Nodes of ``graph_task`` that ``first`` has as well, by index; leaves do not count."""
    known = {_key(node) for node in trace.nodes(first) if node.sequence_nr is not None}
    return {
        node.index
        for node in trace.nodes(graph_task)
        if node.sequence_nr is not None and _key(node) in known
    }


def _key(node: NodeRow) -> tuple[str, int | None, int]:
    return node.name, node.sequence_nr, node.topological_nr


def entry_before(
    trace: Trace, graph_task: int, node: int, shared: set[int]
) -> tuple[NodeRow, NodeRow] | None:
    """The nearest edge before ``node`` that leads into the shared graph."""
    if not shared:
        return None
    producers: dict[int, list[int]] = {}
    for edge in trace.edges(graph_task):
        producers.setdefault(edge.consumer, []).append(edge.producer)
    waiting, seen = [node], {node}
    for inside in waiting:
        for outside in producers.get(inside, ()):
            if outside not in shared:
                return trace.node(graph_task, outside), trace.node(graph_task, inside)
            if outside not in seen:
                seen.add(outside)
                waiting.append(outside)
    return None


def is_made_again(
    trace: Trace, graph_task: int, entry: tuple[NodeRow, NodeRow], shared: set[int]
) -> bool:
    """Whether the line that made what is shared ran once more for the later pass."""
    return any(
        each.frame == entry[1].frame
        for each in trace.nodes(graph_task)
        if each.sequence_nr is not None and each.index not in shared
    )


def carried_line(entry: tuple[NodeRow, NodeRow], call: Frame) -> Frame | None:
    """The line that made what is shared, in the function that calls backward where it is there."""
    made = [frame for frame in entry[1].stack if not frame.hidden]
    here = call.file, call.function
    inside = [frame for frame in made if (frame.file, frame.function) == here]
    return next(iter([*inside[-1:], *made[-1:]]), None)


def meeting(entry: tuple[NodeRow, NodeRow], carried: Frame | None) -> str:
    """Which node uses what which one gave, and within which line that was carried on."""
    outside, inside = entry
    within = f", within {carried}," if carried not in {None, inside.frame} else ""
    return (
        f"{place(outside)}{made_at(outside)} uses what {place(inside)}{made_at(inside)}{within}"
        " gave"
    )
