"""What a run is made of, in sentences: kinds of passes, threads, passes inside of passes."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import TYPE_CHECKING, Final

from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.traces.graph_tasks import GraphTasks
    from agviz.traces.reader import Trace
    from agviz.traces.rows import GraphTaskRow

_MOST_KINDS: Final = 3
"""Of more, as where graphs differ from batch to batch, nothing is said."""
_MOST_READ: Final = 200
"""Reentrant passes whose nodes are looked up."""


def said_of_run(trace: Trace) -> list[str]:
    """What is to be known of a run beside what is unusual; empty: every pass is like the others.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    outermost, inside = trace.graph_tasks.outermost, trace.graph_tasks.inside
    found = [*_kinds(trace, outermost), *_threads(outermost)]
    if inside:
        begun = f" by {_names(trace, inside)}" if len(inside) <= _MOST_READ else ""
        found.append(
            f"{plural(len(inside), 'reentrant pass was', 'reentrant passes were')} begun inside"
            f" them{begun}."
        )
    return found


def said_of_pass(trace: Trace, graph_task: int) -> list[str]:
    """What is to be known of a pass beside what is unusual; empty: nothing.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    tasks, own = trace.graph_tasks.outermost, trace.graph_task(graph_task)
    found = []
    beside = _at_the_time_of(own, tasks)
    if beside:
        named = ", ".join(f"{each:,} (T{thread})" for each, thread in beside[:_MOST_KINDS])
        more = f" and {len(beside) - _MOST_KINDS:,} more" if len(beside) > _MOST_KINDS else ""
        found.append(f"Called on T{own.thread}, it ran at the same time as pass {named}{more}.")
    inside = [trace.graph_task(each) for each in trace.family(graph_task) if each != graph_task]
    if inside:
        begun = f" by {_names(trace, inside)}" if len(inside) <= _MOST_READ else ""
        what = plural(len(inside), "reentrant pass was", "reentrant passes were")
        found.append(f"{what} begun inside it{begun}.")
    return found


def _kinds(trace: Trace, tasks: GraphTasks) -> Iterator[str]:
    counts = Counter(kind for kind in tasks.kinds if kind[2])
    if not 1 < len(counts) <= _MOST_KINDS or min(counts.values()) < 2:
        return
    losses = trace.losses()
    parts = []
    for kind, count in counts.items():
        call = "backward" if kind[0] else "grad"
        text = f"{count:,} calls of {call} with {plural(kind[2], 'node')}"
        first = tasks.ids[tasks.kinds.index(kind)]
        last = tasks.ids[-1 - tasks.kinds[::-1].index(kind)]
        frames = [frame for frame in trace.call_site(first) if not frame.hidden]
        if frames:
            text += f", the first at {frames[-1]}"
        values = losses.get(first), losses.get(last)
        if values[0] is not None and values[1] is not None:
            text += f", loss {values[0]:.4g} in the first and {values[1]:.4g} in the last"
        parts.append(text)
    takes_turns = all(one != other for one, other in itertools.pairwise(tasks.kinds))
    turns = ", which take turns" if takes_turns else ""
    yield f"The passes are of {len(counts)} kinds{turns}: {'; '.join(parts)}."


def _threads(tasks: GraphTasks) -> Iterator[str]:
    if len(tasks.threads) < 2:
        return
    counts = Counter(tasks.callers)
    beside = _beside_another(tasks)
    named = ", ".join(f"{count:,} on T{thread}" for thread, count in sorted(counts.items()))
    some = f"{beside:,} of them ran while one of another thread did"
    none = "no two of them at the same time"
    yield f"They were called on {len(counts)} threads ({named}); {some if beside else none}."


def _spans(tasks: GraphTasks) -> Iterator[tuple[int, float, int, int]]:
    """Begin and end, id and thread of each; infinite end: it did not end."""
    begins, ends = tasks.spans_ns
    until = (math.inf if end < 0 else end for end in ends)
    return zip(begins, until, tasks.ids, tasks.callers, strict=True)


def _at_the_time_of(own: GraphTaskRow, tasks: GraphTasks) -> list[tuple[int, int]]:
    """Which graph tasks of other threads ran while one did, each with its thread."""
    if tasks.threads <= {own.thread} or not tasks.has(own.id):
        return []
    every = [*_spans(tasks)]
    begin, end = next(each[:2] for each in every if each[2] == own.id)
    return [
        (number, thread)
        for begun, ended, number, thread in every
        if thread != own.thread and begun < end and ended > begin
    ]


def _beside_another(tasks: GraphTasks) -> int:
    """How many ran while a pass of another thread did; passes of one thread never overlap."""
    found = set()
    last: dict[int, tuple[float, int]] = {}
    """By thread: when its last one ended, and its id."""
    for begin, end, number, thread in sorted(_spans(tasks)):
        for other, (ended, earlier) in last.items():
            if other != thread and ended > begin:
                found |= {earlier, number}
        last[thread] = end, number
    return len(found)


def _names(trace: Trace, inside: Sequence[GraphTaskRow]) -> str:
    names = sorted({trace.name(task.parent, task.parent_node) for task in inside})
    return " and ".join(names) if len(names) < _MOST_KINDS else f"{len(names)} types of nodes"
