"""Pages of events: any stretch of a long trace, found without counting from its beginning."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
from typing import TYPE_CHECKING, Final

from agviz.trace import codec
from agviz.trace.database import along, given
from agviz_engine import events

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.trace.contents import Contents
    from agviz.trace.database import Database
    from agviz_engine.events import Event

_EVENT: Final = "SELECT seq, t, thread, graph_task, kind, node, a, b, c, d FROM event"
_EVENTS_PER_QUERY: Final = 5_000
_EVENTS_PER_ANCHOR: Final = 1_000


class Pages:
    """The events of a trace file at one moment; a file that grew needs a new one.

    Where the events of a graph task follow each other without gaps, the position of one gives its
    ``seq``. Elsewhere the ``seq`` of every thousandth is kept, an anchor.
    """

    def __init__(self, database: Database, contents: Contents) -> None:
        self._database = database
        self._contents = contents
        self._known_anchors: dict[int | None, list[int]] = {}

    def page(self, graph_task: int | None, offset: int, limit: int) -> list[Event]:
        """Events ``offset`` to ``offset + limit``."""
        offset, limit = max(offset, 0), max(limit, 0)
        count, first, last = self.extent(graph_task)
        if offset >= count:
            return []
        if last - first + 1 == count:
            first, offset = first + offset, 0
        else:
            first = self._anchors(graph_task)[offset // _EVENTS_PER_ANCHOR]
            offset %= _EVENTS_PER_ANCHOR
        return self.where(
            f"seq >= ? {along(graph_task)} ORDER BY seq LIMIT ? OFFSET ?",
            first,
            *given(graph_task),
            limit,
            offset,
        )

    def position(self, graph_task: int | None, seq: int) -> int:
        """Number of events before the one with ``seq``."""
        count, first, last = self.extent(graph_task)
        if seq <= first or not count:
            return 0
        if seq > last:
            return count
        if last - first + 1 == count:
            return seq - first
        anchors = self._anchors(graph_task)
        before = bisect_right(anchors, seq) - 1
        return before * _EVENTS_PER_ANCHOR + self._database.value(
            f"SELECT count(*) FROM event WHERE seq >= ? AND seq < ? {along(graph_task)}",  # noqa: S608
            anchors[before],
            seq,
            *given(graph_task),
        )

    def between(self, low: int, high: int) -> Iterator[Event]:
        """The events with ``low < seq <= high``."""
        while low < high:
            page = self.where(
                "seq > ? AND seq <= ? ORDER BY seq LIMIT ?", low, high, _EVENTS_PER_QUERY
            )
            if not page:
                return
            yield from page
            low = page[-1].seq

    def where(self, condition: str, *parameters: int) -> list[Event]:
        """The events of the rows that fulfil an SQL condition."""
        rows = self._database.numbers(f"{_EVENT} WHERE {condition}", *parameters)
        contents = self._contents
        start_ns = contents.meta.start_ns
        found: list[Event] = []
        for row in rows:
            if row[4] == codec.BEGUN:
                found.append(self._begun(row))
                continue
            try:
                found.append(codec.decode(row, start_ns, contents.name, contents.message))
            except ValueError as error:
                raise self._database.damaged(error) from error
        return found

    def extent(self, graph_task: int | None) -> tuple[int, int, int]:
        """Number of events, and ``seq`` of the first and the last (0 where there is none)."""
        return self._whole if graph_task is None else self._each.get(graph_task, (0, 0, 0))

    @cached_property
    def _whole(self) -> tuple[int, int, int]:
        ((count, first, last),) = self._database.integers(
            "SELECT count(*), coalesce((SELECT min(seq) FROM event), 0),"
            " coalesce((SELECT max(seq) FROM event), 0) FROM event"
        )
        return count, first, last

    @cached_property
    def _each(self) -> dict[int, tuple[int, int, int]]:
        rows = self._database.integers(
            "SELECT graph_task, count(*), min(seq), max(seq) FROM event GROUP BY graph_task"
        )
        return {number: (count, first, last) for number, count, first, last in rows}

    def _anchors(self, graph_task: int | None) -> list[int]:
        anchors = self._known_anchors.get(graph_task)
        if anchors is None:
            rows = self._database.integers(
                "SELECT seq FROM (SELECT seq, row_number() OVER (ORDER BY seq) AS number"  # noqa: S608
                f" FROM event WHERE TRUE {along(graph_task)}) WHERE number % ? = 1",
                *given(graph_task),
                _EVENTS_PER_ANCHOR,
            )
            anchors = self._known_anchors[graph_task] = [seq for (seq,) in rows]
        return anchors

    def _begun(self, row: codec.Row) -> Event:
        seq, _, thread, number, *_ = row
        task = self._contents.graph_tasks.get(-1 if number is None else number)
        if task is None or seq is None or thread is None:
            raise self._database.damaged("a graph task is missing")
        return events.GraphTaskBegun(
            seq,
            task.begin_ns,
            thread,
            task.id,
            task.parent,
            task.parent_node,
            task.reentrant_depth,
            task.keep_graph,
            task.create_graph,
            task.accumulate_grad,
            task.roots,
            task.inputs,
        )
