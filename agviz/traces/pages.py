"""Pages of events: any stretch of a long trace, found without counting from its beginning."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from functools import cached_property
from operator import ge
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.traces import codec
from agviz.traces.database import along, given
from agviz_engine import events

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.traces.contents import Contents
    from agviz.traces.database import Database
    from agviz_engine.events import Event

_EVENT: Final = "SELECT seq, t, thread, graph_task, kind, node, a, b, c, d FROM event"
_EVENTS_PER_QUERY: Final = 128
"""So few at once that the garbage collector does not get to see them."""
_EVENTS_PER_ANCHOR: Final = 1_000
_ALL: Final = -2
"""In place of a graph task: all of them, and events of none."""


class Anchors(NamedTuple):
    """Events of a graph task whose positions are known: the first, the last, and some between."""

    positions: list[int]
    """Ascending; the first is 0."""
    seqs: list[int]
    """Ascending."""

    @property
    def total(self) -> int:
        """Number of events."""
        return self.positions[-1] + 1 if self.positions else 0

    @property
    def is_gapless(self) -> bool:
        """Whether no event of another graph task stands between the first and the last."""
        return not self.positions or self.seqs[-1] - self.seqs[0] == self.positions[-1]


class Pages:
    """The events of a trace file at one moment; a file that grew needs a new one.

    Where the events of a graph task follow each other without gaps, the position of one gives its
    ``seq``. Elsewhere of every thousand events of the file the first that is its own is kept, an
    anchor: the others are found among the thousand that follow it.
    """

    def __init__(self, database: Database, contents: Contents) -> None:
        self._database = database
        self._contents = contents
        self._known: dict[int, Anchors] = {}
        """By graph task, where they were asked for."""

    def page(self, graph_task: int | None, offset: int, limit: int) -> list[Event]:
        """Events ``offset`` to ``offset + limit``."""
        offset, limit = max(offset, 0), max(limit, 0)
        anchors = self._anchors(graph_task)
        if offset >= anchors.total:
            return []
        if anchors.is_gapless:
            first, offset = anchors.seqs[0] + offset, 0
        else:
            before = bisect_right(anchors.positions, offset) - 1
            first = anchors.seqs[before]
            offset -= anchors.positions[before]
        return self.where(
            f"seq BETWEEN ? AND ? {along(graph_task)} ORDER BY seq LIMIT ? OFFSET ?",
            first,
            anchors.seqs[-1],  # or the end of a graph task is looked for to the end of the file
            *given(graph_task),
            limit,
            offset,
        )

    def position(self, graph_task: int | None, seq: int) -> int:
        """Number of events before the one with ``seq``."""
        anchors = self._anchors(graph_task)
        before = bisect_right(anchors.seqs, seq) - 1
        if before < 0:
            return 0
        if seq > anchors.seqs[-1]:
            return anchors.total
        if anchors.is_gapless:
            return seq - anchors.seqs[0]
        return anchors.positions[before] + self._database.value(
            f"SELECT count(*) FROM event WHERE seq >= ? AND seq < ? {along(graph_task)}",  # noqa: S608
            anchors.seqs[before],
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
        contents = self._contents
        start_ns, name, message = contents.meta.start_ns, contents.name, contents.message
        rows = self._database.numbers(f"{_EVENT} WHERE {condition}", *parameters)
        try:
            return [
                self._begun(row)
                if row[4] == codec.BEGUN
                else codec.decode(row, start_ns, name, message)
                for row in rows
            ]
        except ValueError as error:
            raise self._database.damaged(error) from error

    def count(self, graph_task: int | None) -> int:
        """Number of events."""
        if self._contents.has_shortcuts:
            return self._anchors(graph_task).total
        return self._counted.get(_key(graph_task), Anchors([], [])).total

    def to_store(self) -> Iterator[tuple[int, int, int]]:
        """Rows for the table of anchors."""
        for number in self._counted:
            anchors = self._worked_out(number)
            for position, seq in zip(anchors.positions, anchors.seqs, strict=True):
                yield number, position, seq

    @cached_property
    def _counted(self) -> dict[int, Anchors]:
        """The first and the last event, by graph task."""
        found = {_ALL: Anchors([], [])}
        for number, count, first, last in self._database.integers(
            "SELECT graph_task, count(*), min(seq), max(seq) FROM event GROUP BY graph_task"
        ):
            found[number] = _first_and_last(count, first, last)
        if len(found) > 1:
            each = list(found.values())[1:]
            count = sum(anchors.total for anchors in each)
            first = min(anchors.seqs[0] for anchors in each)
            found[_ALL] = _first_and_last(count, first, max(anchors.seqs[-1] for anchors in each))
        return found

    @cached_property
    def _gapped(self) -> dict[int, Anchors]:
        """Those between which stand events of others, by graph task."""
        found = {
            number: Anchors([], []) for number, ends in self._counted.items() if not ends.is_gapless
        }
        if not found:
            return found
        seen = Counter[int]()
        last = -1
        while rows := self._database.integers(
            "SELECT graph_task, count(*), min(seq), max(seq) FROM (SELECT graph_task, seq"
            " FROM event WHERE seq > ? ORDER BY seq LIMIT ?) GROUP BY graph_task",
            last,
            _EVENTS_PER_ANCHOR,
        ):
            counts, firsts, lasts = (column for column in list(zip(*rows, strict=True))[1:])
            last = max(lasts)
            for number, count, first, _ in [*rows, (_ALL, sum(counts), min(firsts), last)]:
                if number in found:
                    found[number].positions.append(seen[number])
                    found[number].seqs.append(first)
                    seen[number] += count
        for number, anchors in found.items():
            ends = self._counted[number]
            if ends.seqs[-1] > anchors.seqs[-1]:
                anchors.positions.append(ends.positions[-1])
                anchors.seqs.append(ends.seqs[-1])
        return found

    def _anchors(self, graph_task: int | None) -> Anchors:
        key = _key(graph_task)
        anchors = self._known.get(key)
        if anchors is None:
            work_out = self._stored if self._contents.has_shortcuts else self._worked_out
            anchors = self._known[key] = work_out(key)
        return anchors

    def _stored(self, key: int) -> Anchors:
        rows = self._database.integers(
            "SELECT position, seq FROM anchor WHERE graph_task = ? ORDER BY position", key
        )
        if key == _ALL and not rows:
            raise self._database.damaged("it does not say how many events there are")
        positions, seqs = map(list, zip(*rows, strict=True)) if rows else ([], [])
        if positions[:1] not in ([], [0]) or any(map(ge, seqs, seqs[1:])):
            raise self._database.damaged("the anchors of its events do not ascend")
        return Anchors(positions, seqs)

    def _worked_out(self, key: int) -> Anchors:
        ends = self._counted.get(key, Anchors([], []))
        if ends.is_gapless or ends.seqs[-1] - ends.seqs[0] < _EVENTS_PER_ANCHOR:
            return ends
        return self._gapped[key]

    def _begun(self, row: codec.Row) -> Event:
        seq, _, thread, number, *_ = row
        task = self._contents.graph_task(-1 if number is None else number)
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
            task.traced,
        )


def _key(graph_task: int | None) -> int:
    return _ALL if graph_task is None else graph_task


def _first_and_last(count: int, first: int, last: int) -> Anchors:
    return Anchors([0, count - 1], [first, last]) if count > 1 else Anchors([0], [first])
