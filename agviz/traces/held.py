"""Threads that a debugger has stopped: how they come into the file, and out of it.

A program that is stopped does nothing either, and whoever reads its trace has to know that from a
hang. So a row is written when a debugger stops a thread, before anybody is notified, and its end
when the thread goes on. Where that is missing, the thread was stopped when the recording ended.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agviz.traces.rows import HeldRow
from agviz_engine.events import NO_GRAPH_TASK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agviz.traces.contents import Contents
    from agviz.traces.database import Database
    from agviz.traces.rows import Frame


class Held(NamedTuple):
    """A debugger has stopped a thread; on its way to the file."""

    number: int
    since_ns: int
    """Time since the start of the recording."""
    thread: int
    graph_task: int
    node: int
    """-1: the event at which it stopped concerns none."""
    reason: str

    def rows(
        self, text: Callable[[str], int], _stack: Callable[[tuple[Frame, ...]], int]
    ) -> Iterator[tuple[str, tuple[int | None, ...]]]:
        """Tables and the rows for them."""
        place = self.thread, self.graph_task, self.node
        yield "held", (self.number, self.since_ns, *place, text(self.reason), None)


class LetGo(NamedTuple):
    """It runs on; on its way to the file."""

    number: int
    """As in :class:`Held`."""
    since_ns: int
    graph_task: int = NO_GRAPH_TASK


def read(database: Database, contents: Contents) -> list[HeldRow]:
    """In order of time.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    start_ns = contents.meta.start_ns
    ended = database.integers("SELECT id, end_t FROM held WHERE end_t IS NOT NULL")
    ends = {number: end for number, end in ended}  # noqa: C416 - a row is of any length to mypy
    return [
        HeldRow(
            t + start_ns,
            thread,
            graph_task,
            node,
            contents.name(reason),
            ends[number] + start_ns if number in ends else None,
        )
        for number, t, thread, graph_task, node, reason in database.integers(
            "SELECT id, t, thread, graph_task, node, reason FROM held ORDER BY t, id"
        )
    ]


def held_ns(held: Sequence[HeldRow], begin_ns: int, end_ns: int) -> int:
    """Time between two moments during which a debugger held any thread.

    Args:
        held: in order of time.
        begin_ns: one moment.
        end_ns: a later one, at which what holds still holds.
    """
    total, until = 0, begin_ns
    for row in held:
        last = end_ns if row.end_ns is None else min(row.end_ns, end_ns)
        first = max(row.time_ns, until)
        if last > first:
            total += last - first
            until = last
    return total
