"""From a graph task to those that its nodes began (reentrant calls), and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from textual.message import Message

from agviz.tui.text import count

if TYPE_CHECKING:
    from agviz.traces.reader import Trace
    from agviz.traces.rows import GraphTaskRow
    from agviz.tui.model import Recording


class Place(NamedTuple):
    """A moment of another graph task."""

    graph_task: int
    seq: int
    """Of the event behind which it is."""
    text: str
    """The graph task, and what is there."""


@dataclass
class NonfiniteFound(Message):
    """The next graph task of the family with something non-finite; None: no other has any."""

    place: Place | None


def next_nonfinite(trace: Trace, recording: Recording) -> NonfiniteFound:
    """A question for the reader thread: where the next graph task of the family went non-finite.

    The order is that of time; behind the last comes the first.
    """
    here = recording.key.graph_task
    tasks = {row.id: row for row in trace.graph_tasks}
    eldest = tasks[here]
    while eldest.parent in tasks:
        eldest = tasks[eldest.parent]
    found = []
    for number in trace.family(eldest.id):
        first = trace.first_nonfinite(number)
        if first is not None or number == here:
            found.append((tasks[number].begin_seq if first is None else first.seq, number))
    found.sort()
    index = next(index for index, (_, number) in enumerate(found) if number == here)
    seq, number = found[(index + 1) % len(found)]
    place = None if number == here else Place(number, seq, _call(tasks[number]))
    return NonfiniteFound(place)


def inside(trace: Trace, graph_task: int, node: int) -> list[Place]:
    """The graph tasks that a node began, at their beginning."""
    return [
        Place(row.id, row.begin_seq, f"{_call(row)}, {count(row.nodes, 'node')}")
        for row in trace.graph_tasks
        if (row.parent, row.parent_node) == (graph_task, node)
    ]


def around(trace: Trace, graph_task: int) -> Place | None:
    """The node that began a graph task, where it was taken up; None: no node did."""
    task = trace.graph_task(graph_task)
    if task.parent < 0:
        return None
    seq = trace.start_near(task.parent, task.begin_seq, -1, task.thread)
    if seq is None:
        return None  # its graph task was not recorded
    name = trace.node(task.parent, task.parent_node, most_outputs=0).short_name
    return Place(task.parent, seq, f"{_call(trace.graph_task(task.parent))}, {name}")


def _call(row: GraphTaskRow) -> str:
    return f"{'backward' if row.accumulate_grad else 'grad'} #{row.id}"
