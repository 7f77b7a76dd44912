"""The graph as it was at one moment: what was done, runs, is ready, waits."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agviz.errors import AgvizError
from agviz.graph.critical import NO_PATH
from agviz.graph.model import Leaf, Node, Queue, StateSnapshot
from agviz.traces.rows import NodeStatus
from agviz.words.labels import queue_label

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agviz.graph.model import TaskGraph
    from agviz.traces.engine_state import EngineState
    from agviz.traces.reader import Trace
    from agviz.traces.rows import NodeRow

QUEUED_SHOWN = 6
"""Nodes of a ReadyQueue that are named."""
_TAKEN_UP = {NodeStatus.RUNNING, NodeStatus.DONE, NodeStatus.SKIPPED, NodeStatus.FAILED}


def at_event(graph: TaskGraph, trace: Trace, seq: int) -> TaskGraph:
    """The graph right after the event with this ``seq``.

    Raises:
        agviz.errors.AgvizError: the graph task did not exist then.
    """
    task = graph.task
    if not task.begin_seq <= seq:
        raise AgvizError(
            f"Event {seq} came before graph task {task.id} began, which was event {task.begin_seq}."
        )
    if task.end_seq is not None and seq > task.end_seq:
        raise AgvizError(
            f"Event {seq} came after graph task {task.id} ended, which was event {task.end_seq}."
        )
    places = {task.id: 0} | {number: inner.first for number, inner in graph.inside.items()}
    found = trace.events(offset=trace.position(seq), limit=1)
    known = found[0].graph_task if found and found[0].graph_task in places else task.id
    state = trace.state_at(known, trace.position(seq + 1, known))
    over = {
        number
        for number, inner in graph.inside.items()
        if inner.task.end_seq is not None and inner.task.end_seq < seq
    }
    under_way = {task.id} | {
        number
        for number, inner in graph.inside.items()
        if number not in over and inner.task.begin_seq <= seq
    }
    statuses = {number: state.statuses(number) for number in sorted(under_way)}

    def then(row: NodeRow) -> NodeRow:
        if row.graph_task in over:
            return row
        known = statuses.get(row.graph_task)
        node = row.index - places[row.graph_task]
        return _row_then(row, known[node] if known else NodeStatus.WAITING, node, state)

    recorded = [row for n in graph.nodes for row in (n.row, *(leaf.row for leaf in n.leaves))]
    nodes = tuple(
        Node(then(n.row), tuple(Leaf(then(x.row), x.edge, x.use, x.uses) for x in n.leaves))
        for n in graph.nodes
    )
    rows = [row for node in nodes for row in (node.row, *(leaf.row for leaf in node.leaves))]
    done = {row.index for row in rows if row.status in _TAKEN_UP}
    marks = replace(
        graph.marks,
        zero=graph.marks.zero & done,
        growth={index: grew for index, grew in graph.marks.growth.items() if index in done},
        nonfinite=frozenset(edge for edge in graph.marks.nonfinite if edge[0] in done),
        zeros=frozenset(edge for edge in graph.marks.zeros if edge[0] in done),
        got_zeros=graph.marks.got_zeros & done,
        hooks={index: hooks for index, hooks in graph.marks.hooks.items() if index in done},
        critical=NO_PATH,
    )
    first = graph.first_nonfinite
    return replace(
        graph,
        nodes=nodes,
        marks=marks,
        first_nonfinite=first if first is not None and first in done else None,
        moment=StateSnapshot(
            seq=seq,
            time_ns=state.time_ns - task.begin_ns,
            queues=tuple(_queues(graph, state, trace, places)),
            waiting={
                places[number] + node: sum(slots.values())
                for number in under_way
                for node, slots in state.buffers(number).items()
            },
            later={
                row.index: row.order
                for row in recorded
                if row.order is not None and row.index not in done
            },
        ),
    )


def _row_then(row: NodeRow, status: NodeStatus, node: int, state: EngineState) -> NodeRow:
    """A node's row without what had not happened yet."""
    if row.status is NodeStatus.UNKNOWN:
        return row
    started = status in _TAKEN_UP
    ended = started and status is not NodeStatus.RUNNING
    bad = started and state.is_nonfinite(row.graph_task, node)
    return replace(
        row,
        status=status,
        order=row.order if started else None,
        thread=row.thread if started else None,
        start_ns=row.start_ns if started else None,
        end_ns=row.end_ns if ended else None,
        nonfinite=row.nonfinite if bad else None,
    )


def _queues(
    graph: TaskGraph, state: EngineState, trace: Trace, places: Mapping[int, int]
) -> list[Queue]:
    threads = {thread.id: thread.name for thread in trace.threads}
    found = []
    for queue in state.queues():
        name = queue_label(queue.queue)
        if queue.queue < 0 and queue.thread != graph.task.thread:
            name += f" {threads.get(queue.thread or 0, queue.thread)}"
        if not queue.is_known:
            found.append(Queue(name, None, ()))
        if not len(queue.tasks):
            continue
        shown = queue.tasks[:QUEUED_SHOWN]
        own = tuple(
            places[task.graph_task] + task.node for task in shown if task.graph_task in places
        )
        found.append(Queue(name, len(queue.tasks), own))
    return found
