"""Where every thread of the engine stands at the end of a trace that still grows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.errors import TraceError
from agviz.traces.rows import GraphTaskStatus, NodeStatus

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agviz.traces.reader import Trace
    from agviz.traces.rows import GraphTaskRow, NodeRow, ThreadRow
    from agviz.traces.state import BackwardState

_MOST_SHOWN: Final = 5


def standing(trace: Trace, now_ns: int, places: Mapping[int, str]) -> Iterator[str]:
    """Lines that tell which node runs where for how long, what is queued, and what waits.

    Args:
        trace: what has happened so far.
        now_ns: ``time.monotonic_ns()`` in the recorded process.
        places: by the operating system's thread id: where in the program a thread is.

    Raises:
        agviz.errors.TraceError: the trace does not make sense.
    """
    under_way = [task for task in trace.graph_tasks if task.status is GraphTaskStatus.RUNNING]
    if not under_way:
        yield "no recorded backward pass is under way"
        return
    last = max(under_way, key=lambda task: _last_seq(trace, task))
    state = trace.state_at(last.id, trace.event_count(last.id))
    threads = {thread.id: thread for thread in trace.threads}
    for task in under_way:
        yield _task(trace, state, task, now_ns)
    running = state.running()
    for number in sorted({*running, *(task.thread for task in under_way)}):
        thread = threads[number]
        nodes = [
            _running(trace.node(task.graph_task, task.node), task.graph_task, now_ns)
            for task in running.get(number, ())
        ]
        waits = "waits for its ReadyQueue"
        where = places.get(thread.native_id)
        yield f"thread {_name(thread)} {', inside it '.join(nodes) or waits}"
        if where:
            yield f"  at {where}"
    yield from _queues(trace, state, threads)
    for task in under_way:
        yield from _waiting(trace, state, task)
    if not state.knows_all:
        yield "not all nodes are recorded: more may be running, queued or waiting"


def _last_seq(trace: Trace, task: GraphTaskRow) -> int:
    return trace.events(task.id, trace.event_count(task.id) - 1, 1)[0].seq


def _task(trace: Trace, state: BackwardState, task: GraphTaskRow, now_ns: int) -> str:
    inside = f" inside backward pass {task.parent}" if task.parent >= 0 else ""
    try:
        executed = state.executed(task.id)
    except KeyError:
        raise TraceError(f"{trace.path} lacks what backward pass {task.id} did") from None
    return (
        f"backward pass {task.id}{inside} has run for {_seconds(now_ns - task.begin_ns)}:"
        f" {executed:,} of {task.nodes:,} nodes done"
    )


def _running(node: NodeRow, graph_task: int, now_ns: int) -> str:
    since = "" if node.start_ns is None else f" for {_seconds(now_ns - node.start_ns)}"
    return f"runs {_node(node)} of backward pass {graph_task}{since}"


def _queues(trace: Trace, state: BackwardState, threads: Mapping[int, ThreadRow]) -> Iterator[str]:
    for queue in state.queues():
        if not queue.tasks:
            continue
        name = (
            f"device {queue.queue}"
            if queue.thread is None
            else f"of {_name(threads[queue.thread])}"
        )
        shown = [
            _node(trace.node(task.graph_task, task.node)) if task.node >= 0 else "shutdown"
            for task in queue.tasks[:_MOST_SHOWN]
        ]
        more = ", …" if len(queue.tasks) > _MOST_SHOWN else ""
        yield f"ReadyQueue {name} holds {len(queue.tasks):,}: {', '.join(shown)}{more}"


def _waiting(trace: Trace, state: BackwardState, task: GraphTaskRow) -> Iterator[str]:
    waiting = [
        (state.remaining(task.id, node), node)
        for node, status in enumerate(state.statuses(task.id))
        if status is NodeStatus.WAITING
    ]
    if waiting:
        shown = [
            f"{_node(trace.node(task.id, node))} ({remaining} of"
            f" {trace.node(task.id, node).dependencies} gradients missing)"
            for remaining, node in sorted(waiting)[:_MOST_SHOWN]
        ]
        more = ", …" if len(waiting) > _MOST_SHOWN else ""
        yield f"{len(waiting):,} nodes wait in backward pass {task.id}: {', '.join(shown)}{more}"


def _node(node: NodeRow) -> str:
    place = node.parameter or node.module
    return f"{node.short_name} [{place}]" if place else f"{node.short_name} (node {node.index})"


def _name(thread: ThreadRow) -> str:
    return f"{thread.id} ({thread.name})"


def _seconds(ns: int) -> str:
    return f"{max(ns, 0) / 1e9:.1f} s"
