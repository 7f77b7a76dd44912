"""What is read of a rank's own trace for a picture: its device threads, and its slowest nodes."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

from agviz.analysis.process_timeline import united
from agviz.ranks.phases import Phase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz.ranks.phases import Phases, Stretch
    from agviz.traces.reader import Trace


class SlowNode(NamedTuple):
    """A node that took long. Times are those of the first rank's clock, in ns."""

    begin_ns: int
    end_ns: int
    busy_ns: int
    """How long it took without the time in which a collective held the rank."""
    name: str
    """``AddmmBackward0``."""
    module: str
    """Path of the module whose forward made it, or the parameter; empty: not known."""


class DeviceThread(NamedTuple):
    """A thread that runs nodes and does not call backward itself."""

    name: str
    turns: tuple[tuple[int, int], ...]
    """From when to when it ran nodes, on the first rank's clock in ns, in order of time; turns no
    more than a given time apart are one."""


class RankWork(NamedTuple):
    """What a rank's own trace says about some of its passes."""

    threads: tuple[DeviceThread, ...]
    slow: tuple[SlowNode, ...]
    """The longest first."""


def held_stretches(
    phases: Phases, number: int, first: int = 0, last: int | None = None
) -> list[Stretch]:
    """Where collectives held a rank from one pass to another, in order of time."""
    return [
        stretch
        for stretch in phases.stretches(number, first, last)
        if stretch.phase in {Phase.WAITING, Phase.TRANSFER}
    ]


def rank_work(
    phases: Phases, number: int, trace: Trace, passes: tuple[int, int], *, most: int, gap_ns: int
) -> RankWork:
    """Read it.

    Args:
        phases: of the run.
        number: the rank.
        trace: its trace.
        passes: the first and the last of those that are meant.
        most: how many slow nodes to name.
        gap_ns: turns of a thread no more than this apart are one.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    held = held_stretches(phases, number, *passes)
    ends = [stretch.end_ns for stretch in held]
    turns: dict[int, list[tuple[int, int]]] = {}
    slow: list[tuple[int, int, int, int, int]] = []
    for one in phases.run.ranks[number].passes[passes[0] : passes[1] + 1]:
        zero_ns = phases.run.on_one_clock(number, one.begin_ns)
        caller = trace.graph_task(one.graph_task).thread
        found = []
        columns = zip(*trace.node_times(one.graph_task), strict=True)
        for node, (start, duration, thread) in enumerate(columns):
            if thread < 0:
                continue
            begin, end = zero_ns + start, zero_ns + start + duration
            if thread != caller:
                turns.setdefault(thread, []).append((begin, end))
            found.append((duration, begin, end, node))
        # What a collective takes off leaves no more than `most` beside those that it holds.
        for duration, begin, end, node in heapq.nlargest(most + len(held), found):
            busy = duration - overlap(held, ends, begin, end)
            slow.append((busy, begin, end, one.graph_task, node))
    names = {thread.id: thread.name for thread in trace.threads}
    return RankWork(
        tuple(
            DeviceThread(names.get(thread, f"thread {thread}"), tuple(united(sorted(each), gap_ns)))
            for thread, each in sorted(turns.items())
        ),
        tuple(_named(trace, *each) for each in heapq.nlargest(most, slow)),
    )


def _named(
    trace: Trace, busy_ns: int, begin_ns: int, end_ns: int, graph_task: int, index: int
) -> SlowNode:
    node = trace.node(graph_task, index)
    name = node.parameter or node.module or ""
    return SlowNode(begin_ns, end_ns, busy_ns, node.short_name, name)


def overlap(held: Sequence[Stretch], ends: Sequence[int], begin: int, end: int) -> int:
    """How much of a time collectives held the rank.

    Args:
        held: where they did, in order of time.
        ends: where each ended.
        begin: of the time.
        end: of it.
    """
    total = 0
    for place in range(bisect_left(ends, begin), len(held)):
        if held[place].begin_ns >= end:
            break
        total += max(0, min(end, held[place].end_ns) - max(begin, held[place].begin_ns))
    return total
