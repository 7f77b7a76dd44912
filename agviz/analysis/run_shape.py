"""What a run is made of, in sentences: kinds of passes, threads, passes inside of passes."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import TYPE_CHECKING, Final

from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
    tasks = trace.graph_tasks
    outermost = [task for task in tasks if task.parent < 0]
    inside = [task for task in tasks if task.parent >= 0]
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
    tasks = trace.graph_tasks
    own = trace.graph_task(graph_task)
    found = []
    beside = [
        task for task in tasks if task.parent < 0 and task.thread != own.thread and _meet(task, own)
    ]
    if beside:
        named = ", ".join(f"{task.id:,} (T{task.thread})" for task in beside[:_MOST_KINDS])
        more = f" and {len(beside) - _MOST_KINDS:,} more" if len(beside) > _MOST_KINDS else ""
        found.append(f"Called on T{own.thread}, it ran at the same time as pass {named}{more}.")
    inside = [trace.graph_task(each) for each in trace.family(graph_task) if each != graph_task]
    if inside:
        begun = f" by {_names(trace, inside)}" if len(inside) <= _MOST_READ else ""
        what = plural(len(inside), "reentrant pass was", "reentrant passes were")
        found.append(f"{what} begun inside it{begun}.")
    return found


def _kinds(trace: Trace, tasks: Sequence[GraphTaskRow]) -> Iterator[str]:
    kinds: dict[tuple[bool, int, int], list[GraphTaskRow]] = {}
    for task in tasks:
        if task.nodes:
            kinds.setdefault((task.accumulate_grad, task.roots, task.nodes), []).append(task)
    if not 1 < len(kinds) <= _MOST_KINDS or any(len(some) < 2 for some in kinds.values()):
        return
    losses = trace.losses()
    parts = []
    for some in kinds.values():
        call = "backward" if some[0].accumulate_grad else "grad"
        text = f"{len(some):,} calls of {call} with {plural(some[0].nodes, 'node')}"
        frames = [frame for frame in trace.call_site(some[0].id) if not frame.hidden]
        if frames:
            text += f", the first at {frames[-1]}"
        first, last = losses.get(some[0].id), losses.get(some[-1].id)
        if first is not None and last is not None:
            text += f", loss {first:.4g} in the first and {last:.4g} in the last"
        parts.append(text)
    takes_turns = all(
        (one.nodes, one.roots, one.accumulate_grad)
        != (other.nodes, other.roots, other.accumulate_grad)
        for one, other in itertools.pairwise(tasks)
    )
    turns = ", which take turns" if takes_turns else ""
    yield f"The passes are of {len(kinds)} kinds{turns}: {'; '.join(parts)}."


def _threads(tasks: Sequence[GraphTaskRow]) -> Iterator[str]:
    counts = Counter(task.thread for task in tasks)
    if len(counts) < 2:
        return
    beside = _beside_another(tasks)
    named = ", ".join(f"{count:,} on T{thread}" for thread, count in sorted(counts.items()))
    some = f"{beside:,} of them ran while one of another thread did"
    none = "no two of them at the same time"
    yield f"They were called on {len(counts)} threads ({named}); {some if beside else none}."


def _beside_another(tasks: Sequence[GraphTaskRow]) -> int:
    """How many ran while a pass of another thread did; passes of one thread never overlap."""
    found = set()
    last: dict[int, GraphTaskRow] = {}
    for task in sorted(tasks, key=lambda task: task.begin_ns):
        for other in last.values():
            if other.thread != task.thread and _meet(other, task):
                found |= {other.id, task.id}
        last[task.thread] = task
    return len(found)


def _meet(one: GraphTaskRow, other: GraphTaskRow) -> bool:
    one_ends = one.end_ns is None or one.end_ns > other.begin_ns
    return one_ends and (other.end_ns is None or other.end_ns > one.begin_ns)


def _names(trace: Trace, inside: Sequence[GraphTaskRow]) -> str:
    names = sorted({trace.name(task.parent, task.parent_node) for task in inside})
    return " and ".join(names) if len(names) < _MOST_KINDS else f"{len(names)} types of nodes"
