"""From a graph task to those that its nodes began (reentrant calls), and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from textual.message import Message

from agviz.tui.passes import others
from agviz.words.units import plural

if TYPE_CHECKING:
    from agviz.traces.reader import Trace
    from agviz.traces.rows import GraphTaskRow
    from agviz.tui.passes import Findings, Order


class RelatedPass(NamedTuple):
    """A moment of another graph task."""

    graph_task: int
    seq: int
    """Of the event behind which it is."""
    text: str
    """The graph task, and what is there."""


@dataclass
class NonfiniteFound(Message):
    """Where to go; None: nowhere."""

    place: RelatedPass | None
    said: str
    """What there is to say of it; empty: nothing."""


def next_nonfinite(
    trace: Trace, findings: Findings, order: Order, graph_task: int, seq: int
) -> NonfiniteFound:
    """Where the first gradient is that is not finite.

    From there, and from the first of any graph task, on to the first of the next that has one, in
    order of time; behind the last comes the first.
    """
    numbers = findings.nonfinite
    if not numbers:
        return NonfiniteFound(None, _all_finite(findings, order))
    target = numbers[0]
    is_there = graph_task in numbers and trace.first_nonfinite_flow(graph_task) == seq
    if is_there:
        target = numbers[(numbers.index(graph_task) + 1) % len(numbers)]
    if is_there and target == graph_task:
        return NonfiniteFound(None, "The playhead is there: the first non-finite gradient.")
    found = trace.first_nonfinite_flow(target)
    task = trace.graph_task(target)
    call = _call(task)
    said = ""
    if len(numbers) > 1:
        which = f"number {numbers.index(target) + 1:,} of {len(numbers):,}"
        said = f"The first non-finite gradient of {call}, {which} with any; x goes on."
    return NonfiniteFound(
        RelatedPass(target, task.begin_seq if found is None else found, call), said
    )


def _all_finite(findings: Findings, order: Order) -> str:
    if not findings.is_checked:
        return "Nothing was checked for non-finite values in this recording."
    total = len(order.outermost)
    where = f", in all {total:,} passes" if total > 1 else ""
    said = f"Every gradient that was checked is finite{where}."
    return " ".join(text for text in (said, others(findings, order, None)) if text)


def inside(trace: Trace, graph_task: int, node: int) -> list[RelatedPass]:
    """The graph tasks that a node began, at their beginning."""
    return [
        RelatedPass(row.id, row.begin_seq, f"{_call(row)}, {plural(row.nodes, 'node')}")
        for row in trace.graph_tasks.inside
        if (row.parent, row.parent_node) == (graph_task, node)
    ]


def around(trace: Trace, graph_task: int) -> RelatedPass | None:
    """The node that began a graph task, where it was taken up; None: no node did."""
    task = trace.graph_task(graph_task)
    if task.parent < 0:
        return None
    seq = trace.start_near(task.parent, task.begin_seq, -1, task.thread)
    if seq is None:
        return None  # its graph task was not recorded
    name = trace.node(task.parent, task.parent_node, most_outputs=0).short_name
    return RelatedPass(task.parent, seq, f"{_call(trace.graph_task(task.parent))}, {name}")


def _call(row: GraphTaskRow) -> str:
    return f"{'backward' if row.accumulate_grad else 'grad'} #{row.id}"
