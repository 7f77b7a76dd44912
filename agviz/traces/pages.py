"""Pages of events: any stretch of a long trace, found without counting from its beginning."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property
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
    ``seq``. Elsewhere the ``seq`` of every thousandth is kept, an anchor.
    """

    def __init__(self, database: Database, contents: Contents) -> None:
        self._database = database
        self._contents = contents
        self._dense: dict[int, Anchors] = {}

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
        if graph_task is None:
            return self._ends[_ALL].total
        return self._ends[graph_task].total if graph_task in self._ends else 0

    def last_seq(self, graph_task: int) -> int:
        """``seq`` of the last event of a graph task, -1 where it has none."""
        return self._ends[graph_task].seqs[-1] if graph_task in self._ends else -1

    def to_store(self) -> Iterator[tuple[int, int, int]]:
        """Rows for the table of anchors."""
        for number in self._ends:
            anchors = self._anchors(None if number == _ALL else number)
            for position, seq in zip(anchors.positions, anchors.seqs, strict=True):
                yield number, position, seq

    @cached_property
    def _ends(self) -> dict[int, Anchors]:
        """By graph task: at least the first and the last event."""
        if not self._contents.has_shortcuts:
            return self._counted()
        rows = self._database.integers(
            "SELECT graph_task, position, seq FROM anchor ORDER BY graph_task, position"
        )
        found: dict[int, Anchors] = {}
        for number, position, seq in rows:
            positions, seqs = found.setdefault(number, Anchors([], []))
            if position > positions[-1] and seq > seqs[-1] if positions else position == 0:
                positions.append(position)
                seqs.append(seq)
            else:
                raise self._database.damaged("the anchors of its events do not ascend")
        if _ALL not in found:
            raise self._database.damaged("it does not say how many events there are")
        return found

    def _counted(self) -> dict[int, Anchors]:
        found = {_ALL: Anchors([], [])}
        for number, count, first, last in self._database.integers(
            "SELECT graph_task, count(*), min(seq), max(seq) FROM event GROUP BY graph_task"
        ):
            found[number] = _ends(count, first, last)
        if len(found) > 1:
            each = list(found.values())[1:]
            count = sum(anchors.total for anchors in each)
            first = min(anchors.seqs[0] for anchors in each)
            found[_ALL] = _ends(count, first, max(anchors.seqs[-1] for anchors in each))
        return found

    def _anchors(self, graph_task: int | None) -> Anchors:
        key = _ALL if graph_task is None else graph_task
        ends = self._ends.get(key, Anchors([], []))
        if ends.is_gapless or len(ends.seqs) > 2 or ends.total <= _EVENTS_PER_ANCHOR:
            return ends
        if key not in self._dense:
            rows = self._database.integers(
                "SELECT number - 1, seq FROM (SELECT seq, row_number() OVER (ORDER BY seq) AS"  # noqa: S608
                f" number FROM event WHERE TRUE {along(graph_task)}) WHERE number % ? = 1",
                *given(graph_task),
                _EVENTS_PER_ANCHOR,
            )
            anchors = Anchors([row[0] for row in rows], [row[1] for row in rows])
            if anchors.seqs and ends.seqs[-1] > anchors.seqs[-1]:
                anchors.positions.append(ends.positions[-1])
                anchors.seqs.append(ends.seqs[-1])
            self._dense[key] = anchors
        return self._dense[key]

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


def _ends(count: int, first: int, last: int) -> Anchors:
    return Anchors([0, count - 1], [first, last]) if count > 1 else Anchors([0], [first])
