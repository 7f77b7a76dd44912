"""Events: all statements that select from the table ``event`` but for nodes and the timeline.

Any stretch of a long trace is found without counting from its beginning, and so are the events of a
node, where the recording was closed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from functools import cached_property
from itertools import chain, groupby
from operator import ge, itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from agviz.traces import codec
from agviz.traces.database import DURING, along, given, of, place
from agviz.traces.intervals import Moments
from agviz.traces.rows import GraphTaskStatus
from agviz.traces.schema import (
    ARRIVAL,
    ARRIVED,
    AT,
    BLOCK,
    CAPTURED,
    CHECK,
    DELIVERED,
    ENDS,
    EXECUTION,
    FAILED,
    FINDING,
    FINISHED,
    GRADIENT,
    HOOK_CALLED,
    IS_FIRST,
    IS_SECOND,
    MOMENTS,
    NBYTES,
    OF_EVENT,
    SLOT,
    STARTED,
)
from agviz_engine.events import GradientAccumulated

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from agviz.traces.database import Database
    from agviz.traces.intervals import Intervals
    from agviz.traces.rows import GraphTaskRow
    from agviz_engine.events import Event

_ROW: Final = "SELECT seq, t, thread, graph_task, kind, node, a, b, c, d, e FROM event"
_ROWS_PER_ANCHOR: Final = 32
"""At least: of events that follow each other, each block has one."""
_ROWS_PER_PIECE: Final = 10_000
"""So many are put into blocks at once."""
_MOST_STRETCHES: Final = 200
"""In a statement; where more arrived at a node, it looks at what lies between, too."""
_MOST_LISTED: Final = 4_000
"""Numbers in a statement."""
_STRETCHES_KEPT: Final = 8
"""Stretches between anchors of which events are kept, for whoever goes on event by event."""
ROW_OF_EVENT: Final = f"(SELECT event.seq FROM event WHERE {OF_EVENT})"  # noqa: S608
"""SQL of ``seq`` of the row by which an event is found; that of the event is given three times."""
FROM_MEASURED: Final = "health CROSS JOIN event ON event.seq = health.seq"
"""From what was measured to its event and never the other way, which CROSS JOIN says to SQLite: few
events belong to what is asked for."""
_COUNT: Final = f"sum({IS_FIRST} + {IS_SECOND})"
_ARRIVALS: Final = (ARRIVED, DELIVERED)
_ACCUMULATED: Final = codec.KIND[GradientAccumulated]
_ALL: Final = -2
"""In place of a graph task: all of them, and events of none."""


class Place(NamedTuple):
    """An event, by its number, and the graph task it belongs to."""

    seq: int
    graph_task: int


class NodeBegun(NamedTuple):
    """A NodeStarted of any graph task."""

    seq: int
    graph_task: int
    node: int


class ArrivalRow(NamedTuple):
    """A gradient arrived in a slot of a node's InputBuffer."""

    producer: int
    """Node that put it out; -1: the caller of backward gave it."""
    node: int
    slot: int
    nbytes: int
    """Bytes that the slot held afterwards."""


class Anchors(NamedTuple):
    """Rows of a graph task of which it is known how many events come before them."""

    positions: list[int]
    """Ascending; the first is 0, the last the number of events."""
    seqs: list[int]
    """Ascending; the last is behind all events."""

    @property
    def total(self) -> int:
        """Number of events."""
        return self.positions[-1] if self.positions else 0


class EventReader:
    """The events of a trace file at one moment; a file that grew needs a new one.

    Of each graph task the first row in some blocks of the file is kept, an anchor: the others are
    found among those that follow it.

    Args:
        database: the file.
        decode: gives the events of rows.
        is_closed: whether the recording was closed, and anchors were stored.
        intervals: what happened to the nodes of a graph task; asked only where it was closed.
    """

    def __init__(
        self,
        database: Database,
        decode: Callable[[Sequence[codec.Row]], list[Event]],
        is_closed: Callable[[], bool],
        intervals: Callable[[int], Intervals | None],
    ) -> None:
        self._database = database
        self._intervals = intervals
        self._decode = decode
        self._is_closed = is_closed
        self._known: dict[int, Anchors] = {}
        """By graph task, where they were asked for."""
        self._stretches: dict[tuple[int, int, int], list[Event]] = {}
        """By graph task, ``seq`` of the first row, and that behind the last."""

    def page(self, graph_task: int | None, offset: int, limit: int) -> list[Event]:
        """Events ``offset`` to ``offset + limit``."""
        offset, limit = max(offset, 0), max(limit, 0)
        anchors = self._anchors(graph_task)
        if offset >= anchors.total or not limit:
            return []
        first = bisect_right(anchors.positions, offset) - 1
        last = min(bisect_left(anchors.positions, offset + limit), len(anchors.seqs) - 1)
        skipped = offset - anchors.positions[first]
        events = self._stretch(graph_task, *(anchors.seqs[place] for place in (first, last)))
        return events[skipped : skipped + limit]

    def _stretch(self, graph_task: int | None, first: int, end: int) -> list[Event]:
        """The events between two anchors."""
        key = _key(graph_task), first, end
        known = self._stretches.get(key)
        if known is None:
            if len(self._stretches) >= _STRETCHES_KEPT:
                self._stretches.clear()
            known = self._stretches[key] = self.where(
                f"seq >= ? AND seq < ? {along(graph_task)} ORDER BY seq",
                *(first, end, *given(graph_task)),
            )
        return known

    def position(self, graph_task: int | None, seq: int) -> int:
        """Number of events before the one with ``seq``."""
        anchors = self._anchors(graph_task)
        before = bisect_right(anchors.seqs, seq) - 1
        if before < 0:
            return 0
        if before == len(anchors.seqs) - 1:
            return anchors.total
        return anchors.positions[before] + self._database.value(
            f"SELECT ifnull(sum({IS_FIRST} + ({IS_SECOND} AND seq + 1 < ?)), 0) FROM event"  # noqa: S608
            f" WHERE seq >= ? AND seq < ? {along(graph_task)}",
            seq,
            anchors.seqs[before],
            seq,
            *given(graph_task),
        )

    def where(self, condition: str, *parameters: int) -> list[Event]:
        """The events of the rows that fulfil an SQL condition."""
        rows = self._database.numbers(f"{_ROW} WHERE {condition}", *parameters)
        return self._decode(rows)

    def numbered(self, seqs: Sequence[int]) -> list[Event]:
        """The events with these ``seq``, in order."""
        wanted = set(seqs)
        rows = sorted(wanted | {seq - 1 for seq in wanted})
        found = self.where(f"seq IN ({','.join('?' * len(rows))}) ORDER BY seq", *rows)
        return [event for event in found if event.seq in wanted]

    def of(self, graph_task: int, node: int, kinds: Collection[int], limit: int) -> list[Event]:
        """The first ``limit`` events of a node that are of some kinds, in order."""
        found = self.where(
            f"{self.of_node(graph_task, node, kinds)} ORDER BY seq LIMIT ?",
            limit,
        )
        return [each for each in found if codec.KIND[type(each)] in kinds][:limit]

    def about(self, graph_task: int, node: int) -> list[Event]:
        """The events of a node, and those in which it gave a gradient to a consumer, in order."""
        return self.where(f"{self._about_node(graph_task, node)} ORDER BY seq")

    def count(self, graph_task: int | None) -> int:
        """Number of events."""
        if self._is_closed():
            last = "SELECT coalesce(max(position), 0) FROM anchor WHERE graph_task = ?"
            return self._database.value(last, _key(graph_task))
        return self._anchors(graph_task).total

    def of_node(
        self, graph_task: int, node: int, kinds: Collection[int] = (), beside: str = ""
    ) -> str:
        """The SQL condition of the rows with events of a node.

        Args:
            graph_task: that of the node.
            node: the node.
            kinds: of events; none: any.
            beside: the table that has a row for each of those that are wanted; empty: all are.
        """
        mine = _of_node(graph_task, node)
        rows = sorted({row for kind in kinds for row in codec.ROWS_OF[kind]})
        if kinds:
            mine += f" AND event.kind IN ({', '.join(f'{kind:d}' for kind in rows)})"
        if not self._are_stored:
            return mine
        parts = self._places(graph_task, node, rows, mine, beside)
        return f"event.seq IN ({' UNION ALL '.join(parts)})"

    def _places(
        self, graph_task: int, node: int, kinds: Collection[int], mine: str, beside: str = ""
    ) -> Iterator[str]:
        """SQL of the events of a node that fulfil the condition ``mine``, in parts."""
        if not kinds or {*kinds} - {*_ARRIVALS}:
            yield self._own(graph_task, node, mine)
            yield self._near(graph_task, node, mine)
        if not kinds or not {*_ARRIVALS}.isdisjoint(kinds):
            yield self._arriving(graph_task, node, mine, beside)

    def _about_node(self, graph_task: int, node: int) -> str:
        """The SQL condition of the events of a node and of gradients that it gave to a consumer."""
        gave = f"event.graph_task = {graph_task:d} AND event.a = {node:d} AND {ARRIVAL}"
        mine = _of_node(graph_task, node)
        if not self._are_stored:
            return f"({mine} OR {gave})"
        moments = self._moments_of(graph_task, node)
        end = -1 if moments is None or moments.ended is None else moments.ended
        block = end // BLOCK * BLOCK
        after = (
            f"SELECT seq FROM event WHERE {gave}"  # noqa: S608 - numbers
            f" AND seq BETWEEN {block:d} AND {block + 2 * BLOCK - 1:d}"
        )
        near = self._near(graph_task, node, gave)
        own = self._places(graph_task, node, (), mine)
        return f"event.seq IN ({' UNION ALL '.join((*own, after, near))})"

    def _own(self, graph_task: int, node: int, condition: str) -> str:
        """SQL of the events that fulfil a condition, of those that moved a node on or between."""
        event = f"SELECT event.seq FROM event WHERE {condition} AND event.seq"  # noqa: S608
        moments = self._moments_of(graph_task, node)
        if moments is None:
            return f"{event} IN ()"
        low = moments.pushed if moments.popped is None else moments.popped
        high = low if moments.ended is None else moments.ended
        return (
            f"{event} IN ({_number(moments.pushed)}, {_number(moments.failed)})"
            f" UNION ALL {event} BETWEEN {_number(low)} AND {_number(high)}"
        )

    def arrived(self, graph_task: int, node: int) -> list[tuple[int, ...]]:
        """Slot, number of arrivals, bytes and ``seq`` of the last gradient that arrived at a node.

        Empty where none did.
        """
        intervals = self._intervals(graph_task) if self._is_closed() else None
        if intervals is not None:
            gradients = intervals.gradients(node) if 0 <= node < intervals.size else []
            return [(slot, len(gradients), nbytes, seq) for seq, slot, nbytes in gradients[-1:]]
        mine = f"{_of_node(graph_task, node)} AND {GRADIENT}"
        rows = self._database.integers(
            f"SELECT {SLOT}, {NBYTES}, {AT} FROM event WHERE {mine} ORDER BY seq DESC LIMIT 1"  # noqa: S608
        )
        count = f"SELECT count(*) FROM event WHERE {mine}"  # noqa: S608 - numbers
        return [(slot, self._database.value(count), nbytes, seq) for slot, nbytes, seq in rows]

    def _arriving(self, graph_task: int, node: int, condition: str, beside: str) -> str:
        """SQL of the events that fulfil a condition, of those that arrived at a node."""
        intervals = self._intervals(graph_task)
        is_there = intervals is not None and 0 <= node < intervals.size
        seqs = intervals.arrivals(node) if intervals is not None and is_there else []
        if beside and len(seqs) > _MOST_STRETCHES:
            seqs = self._beside(beside, seqs)
        each = len(seqs) // _MOST_STRETCHES + 1
        stretches = [seqs[place : place + each] for place in range(0, len(seqs), each)]
        if not stretches:
            return "SELECT NULL WHERE FALSE"
        listed = ", ".join(f"({stretch[0]:d}, {stretch[-1]:d})" for stretch in stretches)
        return (
            f"SELECT event.seq FROM (VALUES {listed}) AS stretch CROSS JOIN event"  # noqa: S608 - numbers
            f" ON event.seq BETWEEN stretch.column1 AND stretch.column2 WHERE {condition}"
        )

    def _beside(self, table: str, seqs: Sequence[int]) -> list[int]:
        """Those of some rows beside which a table has one.

        Of 6,475 gradients that arrive at a leaf they are found in 2 ms, among all the events
        between these in 200.
        """
        found = []
        for begin in range(0, len(seqs), _MOST_LISTED):
            listed = ", ".join(map(str, seqs[begin : begin + _MOST_LISTED]))
            found += self._database.integers(f"SELECT seq FROM {table} WHERE seq IN ({listed})")  # noqa: S608 - numbers
        return [seq for (seq,) in found]

    def _near(self, graph_task: int, node: int, condition: str) -> str:
        """SQL of the events that fulfil a condition in some blocks of a node."""
        return (
            "SELECT event.seq FROM node_block CROSS JOIN event"  # noqa: S608
            f" ON event.seq BETWEEN block * {BLOCK} AND block * {BLOCK} + {BLOCK - 1}"
            f" WHERE node_block.graph_task = {graph_task:d} AND node_block.node = {node:d}"
            f" AND {condition}"
        )

    @cached_property
    def _are_stored(self) -> bool:
        """Whether the file says where the events of nodes are."""
        return self._is_closed() and bool(self._database.value("SELECT EXISTS (SELECT 1 FROM run)"))

    def _moments_of(self, graph_task: int, node: int) -> Moments | None:
        """When a node was queued and ran, in a recording that was closed."""
        intervals = self._intervals(graph_task)
        is_there = intervals is not None and 0 <= node < intervals.size
        return intervals.moments(node) if intervals is not None and is_there else None

    def moments(self, task: GraphTaskRow, node: int | None = None) -> list[Moments]:
        """When the nodes of a graph task were queued, ran and ended, as far as they did.

        Args:
            task: the graph task.
            node: only this node of it; None: all.
        """
        if not self._is_closed():
            mine = "" if node is None else f" AND node = {node:d}"
            rows = self._database.numbers(
                f"SELECT {', '.join(Moments._fields)} FROM ({MOMENTS} AND +graph_task = ?"  # noqa: S608
                f" AND seq BETWEEN ? AND ?{mine} GROUP BY graph_task, node)",
                *place(task),
            )
            return list(map(Moments._make, rows))
        intervals = self._intervals(task.id)
        nodes = range(0 if intervals is None else intervals.size)
        if node is not None:
            nodes = nodes[node : node + 1]
        return [intervals.moments(each) for each in nodes] if intervals is not None else []

    def seqs(
        self,
        graph_task: int,
        kinds: Collection[int],
        thread: int | None,
        node: int | None,
        *,
        found_only: bool,
    ) -> list[int]:
        """``seq`` of the events of a graph task that are of some kinds; no kinds: of any.

        Args:
            graph_task: whose events.
            kinds: their numbers.
            thread: only events of this thread; None: of any.
            node: only events that concern this node; None: of any.
            found_only: leave out checks that found no NaN and no infinities.
        """
        wanted = set(kinds) or {*codec.KIND.values()}
        mine = f"+graph_task = {graph_task:d}"
        if node is not None:
            mine = self.of_node(graph_task, node, sorted(kinds))
        mine += f" {of(thread, 'thread')}"
        if found_only:
            mine += f" AND (NOT {CHECK} OR {FINDING})"
        halves = []
        for second, is_there in ((False, IS_FIRST), (True, IS_SECOND)):
            kinds_of_rows = {
                row
                for kind in wanted
                for row in codec.ROWS_OF[kind]
                if (row >= STARTED and kind in codec.SECOND) is second
            }
            listed = ", ".join(map(str, sorted(kinds_of_rows)))
            halves.append(
                f"SELECT seq + {second:d} AS at FROM event"  # noqa: S608
                f" WHERE {mine} AND kind IN ({listed}) AND {is_there}"
            )
        rows = self._database.integers(
            f"{' UNION ALL '.join(halves)} ORDER BY at", *2 * given(thread)
        )
        return [row[0] for row in rows]

    def has_checks(self, task: GraphTaskRow | None) -> bool:
        """Whether some output of a node was looked at for NaN and infinities."""
        mine = "TRUE" if task is None else DURING
        return bool(
            self._database.value(
                f"SELECT EXISTS (SELECT 1 FROM event WHERE {CHECK} AND {mine})",  # noqa: S608
                *(() if task is None else place(task)),
            )
        )

    def findings(self, graph_task: int | None, limit: int) -> list[tuple[int, ...]]:
        """Graph task, node, thread, output, counts of NaN, +Inf and -Inf, ``seq`` and time.

        Of the checks that found some, in order.
        """
        return self._database.integers(
            f"SELECT graph_task, node, thread, a, b, c, d, seq, t FROM event WHERE"  # noqa: S608
            f" {FINDING} {of(graph_task)} ORDER BY seq LIMIT ?",
            *given(graph_task),
            max(limit, 0),
        )

    def hooks(self, task: GraphTaskRow | None) -> list[tuple[int, ...]]:
        """Kind, name, number of calls, duration and number of changes, the longest first."""
        return self._database.integers(
            "SELECT a, b, count(*), sum(c), sum(d <> 0) FROM event"  # noqa: S608
            f" WHERE {'TRUE' if task is None else DURING} AND kind = {HOOK_CALLED}"
            " GROUP BY a, b ORDER BY sum(c) DESC, min(seq)",
            *(() if task is None else place(task)),
        )

    def hooks_by_node(self, task: GraphTaskRow) -> list[tuple[int, ...]]:
        """Calls of hooks by node, which comes first, in order of first calls."""
        return self._database.integers(
            "SELECT node, a, b, count(*), sum(c), sum(d <> 0) FROM event"  # noqa: S608
            f" WHERE {DURING} AND kind = {HOOK_CALLED} GROUP BY node, a, b"
            " ORDER BY node, min(seq)",
            *place(task),
        )

    def captures(self, task: GraphTaskRow) -> list[tuple[int, int]]:
        """Node and slot of each result of ``grad``, in order of capture."""
        rows = self._database.integers(
            f"SELECT node, a FROM event WHERE {DURING} AND kind = {CAPTURED} ORDER BY seq",  # noqa: S608
            *place(task),
        )
        return [(node, slot) for node, slot in rows]

    def arrivals(self, task: GraphTaskRow) -> list[ArrivalRow]:
        """The gradients that arrived in InputBuffers of a graph task, in order."""
        rows = self._database.integers(
            f"SELECT ifnull(a, -2), ifnull(node, -1), ifnull({SLOT}, -1), ifnull({NBYTES}, -1)"  # noqa: S608
            f" FROM event WHERE {DURING} AND {GRADIENT} ORDER BY seq",
            *place(task),
        )
        found = list(map(ArrivalRow._make, rows))
        for row in found:
            are_nodes = -1 <= row.producer < task.nodes and 0 <= row.node < task.nodes
            if not are_nodes or min(row[2:]) < 0:
                raise self._database.damaged("a gradient arrived at a node that is not there")
        return found

    def time_of(self, seq: int) -> int:
        """When the row of an event was made, in ns since the start of the recording."""
        return self._database.value("SELECT ifnull(min(t), 0) FROM event WHERE seq = ?", seq)

    def last(self) -> int:
        """``seq`` of the last event; -1: there is none."""
        rows = self._database.integers(f"SELECT {AT} FROM event ORDER BY seq DESC LIMIT 1")  # noqa: S608
        return rows[0][0] if rows else -1

    def started(self, graph_task: int, after: int, until: int, limit: int) -> list[tuple[int, ...]]:
        """``seq``, time, thread and node of the next executions behind an event, in order."""
        return self._database.integers(
            f"SELECT seq + 1, t, thread, node FROM event WHERE kind = {STARTED}"  # noqa: S608
            " AND +graph_task = ? AND seq >= ? AND seq < ? ORDER BY seq LIMIT ?",
            *(graph_task, after, until, limit),
        )

    def ended(self, graph_task: int, after: int, until: int) -> list[tuple[int, ...]]:
        """``seq``, node, time and kind of the ends of executions behind an event, in order."""
        return self._database.integers(
            f"SELECT {AT}, node, t, kind FROM event WHERE kind IN {ENDS}"  # noqa: S608
            f" AND +graph_task = ? AND seq >= ? AND seq <= ? AND {AT} > ? AND {AT} <= ?"
            " ORDER BY seq",
            *(graph_task, after, until, after, until),
        )

    def found(self, graph_task: int, after: int, until: int) -> list[tuple[int, int]]:
        """``seq`` and node of the findings of NaN and infinities behind an event, in order."""
        rows = self._database.integers(
            f"SELECT seq, node FROM event WHERE {FINDING} AND graph_task = ?"  # noqa: S608
            " AND seq > ? AND seq <= ? ORDER BY seq",
            *(graph_task, after, until),
        )
        return [(seq, node) for seq, node in rows]

    def count_started(self, graph_task: int, after: int, until: int) -> int:
        """How many nodes of a graph task were taken up between two events."""
        return self._database.value(
            f"SELECT count(*) FROM event WHERE kind = {STARTED} AND +graph_task = ?"  # noqa: S608
            " AND seq >= ? AND seq < ?",
            *(graph_task, after, until),
        )

    def first_failure(self, task: GraphTaskRow) -> int | None:
        """See :meth:`agviz.traces.reader.Trace.first_failure`."""
        if task.status is GraphTaskStatus.FINISHED:
            return None
        found = [
            moments.ended if moments.failed is None else moments.failed
            for moments in self.moments(task)
            if moments.failed is not None or moments.outcome == FAILED
        ]
        known = [seq for seq in found if seq is not None]
        if known:
            return min(known)
        return task.end_seq if task.status is GraphTaskStatus.FAILED else None

    def arrived_by_slot(self, graph_task: int, node: int) -> list[tuple[int, ...]]:
        """Slot, number, bytes of the last and its ``seq``, of the gradients that arrived."""
        mine = self.of_node(graph_task, node, [_ACCUMULATED])
        return self._database.integers(
            f"SELECT {SLOT} AS slot, count(*), {NBYTES}, max({AT}) FROM event"  # noqa: S608
            f" WHERE {mine} AND {GRADIENT} GROUP BY slot ORDER BY slot"
        )

    def to_store(self) -> Iterator[tuple[int, int, int]]:
        """Rows for the table of anchors."""
        for number, anchors in self._worked_out.items():
            for position, seq in zip(anchors.positions, anchors.seqs, strict=True):
                yield number, position, seq

    def lasts(self) -> dict[int, int]:
        """``seq`` of the last event of each graph task."""
        return {number: anchors.seqs[-1] - 1 for number, anchors in self._worked_out.items()}

    @cached_property
    def _worked_out(self) -> dict[int, Anchors]:
        """All anchors, by graph task."""
        found: dict[int, Anchors] = {}
        totals, ends, due = Counter[int](), Counter[int](), Counter[int]()
        rows_before = 0
        for _, block in groupby(self._blocks(), itemgetter(0)):
            parts = [row[1:] for row in block]
            _, rows, counts, firsts, lasts = zip(*parts, strict=True)
            if sum(rows) > BLOCK:
                raise self._database.damaged("it holds an event more than once")
            all_of_it = _ALL, sum(rows), sum(counts), min(firsts), max(lasts)
            for number, _, count, first, last in [*parts, all_of_it]:
                if rows_before >= due[number]:
                    anchors = found.setdefault(number, Anchors([], []))
                    anchors.positions.append(totals[number])
                    anchors.seqs.append(first)
                    due[number] = rows_before + _ROWS_PER_ANCHOR
                totals[number] += count
                ends[number] = last + 1
            rows_before += sum(rows)
        for number, anchors in found.items():
            anchors.positions.append(totals[number])
            anchors.seqs.append(ends[number])
        return found

    def _blocks(self) -> Iterator[tuple[int, ...]]:
        """What there is of each graph task in each block of events, in order of blocks.

        Block, graph task, rows, events, ``seq`` of the first row and of the last event.
        """
        last, are_more = -1, True
        while are_more:
            found = self._database.integers(
                f"SELECT seq / {BLOCK}, graph_task, count(*), {_COUNT}, min(seq), max({AT})"  # noqa: S608
                " FROM (SELECT * FROM event WHERE seq > ? ORDER BY seq LIMIT ?) AS event"
                " GROUP BY 1, 2",
                last,
                _ROWS_PER_PIECE,
            )
            yield from found
            are_more = sum(row[2] for row in found) == _ROWS_PER_PIECE
            last = max((row[-1] for row in found), default=last)

    def _anchors(self, graph_task: int | None) -> Anchors:
        key = _key(graph_task)
        anchors = self._known.get(key)
        if anchors is None:
            is_stored = self._is_closed()
            found = self._stored_anchors(key) if is_stored else self._worked_out.get(key)
            anchors = self._known[key] = found or Anchors([], [])
        return anchors

    def _stored_anchors(self, key: int) -> Anchors:
        rows = self._database.integers(
            "SELECT position, seq FROM anchor WHERE graph_task = ? ORDER BY position", key
        )
        if key == _ALL and not rows:
            raise self._database.damaged("it does not say how many events there are")
        positions, seqs = map(list, zip(*rows, strict=True)) if rows else ([], [])
        if positions[:1] not in ([], [0]) or any(map(ge, seqs, seqs[1:])):
            raise self._database.damaged("the anchors of its events do not ascend")
        return Anchors(positions, seqs)


def _key(graph_task: int | None) -> int:
    return _ALL if graph_task is None else graph_task


def _number(seq: int | None) -> str:
    return "NULL" if seq is None else f"{seq:d}"


def _of_node(graph_task: int, node: int) -> str:
    return f"event.graph_task = {graph_task:d} AND event.node = {node:d}"


_ONE_BY_ONE: Final = 16
"""Up to so many graph tasks that did not finish, each is counted by itself."""


def executed(database: Database, begins: Mapping[int, int]) -> dict[int, int]:
    """How many nodes of graph tasks have finished.

    Args:
        database: the file.
        begins: the graph tasks, and ``seq`` of their GraphTaskBegun.
    """
    # The first event of a graph task bounds the search among events.
    counted = (
        f"SELECT graph_task, count(*) FROM event WHERE kind = {FINISHED}"  # noqa: S608 - our words
        f" AND seq > {min(begins.values(), default=0):d}"
    )
    if len(begins) > _ONE_BY_ONE:
        rows = database.integers(f"{counted} GROUP BY graph_task")
    else:
        one = f"{counted} AND +graph_task = ? GROUP BY graph_task"
        rows = list(chain(*(database.integers(one, number) for number in begins)))
    counts = {row[0]: row[1] for row in rows}
    return {number: counts.get(number, 0) for number in begins}


def unknown_threads(database: Database) -> dict[int, int]:
    """The threads without a row that took up nodes: the queues they took them from, by id."""
    rows = database.integers(
        "SELECT thread, max(queue) FROM event JOIN node"  # noqa: S608
        " ON node.graph_task = event.graph_task AND node.idx = event.node"
        f" WHERE {EXECUTION} AND thread NOT IN (SELECT id FROM thread) GROUP BY thread"
    )
    return dict(cast("list[tuple[int, int]]", rows))


def beside(table: str) -> str:
    """SQL of the events that have a row in a table of what is known of gradients, with that."""
    return f"event JOIN {table} ON {table}.seq = event.seq"


def near(
    database: Database, seq: int, count: int, *, thread: int | None, nodes: bool
) -> Place | None:
    """The ``count``-th event of any graph task after an event, before it where negative.

    Args:
        database: the file.
        seq: of the event; any number will do.
        count: not 0.
        thread: only what this thread did; None: any.
        nodes: count only where a node was taken up.
    """
    # The event of a row may be at its seq or one behind: of a row next to seq, both are looked at.
    after, order = (">= ? - 1", "ASC") if count > 0 else ("<= ?", "DESC")
    conditions = ["graph_task >= 0", f"seq {after}", f"kind <> {codec.BEGUN}"]
    parameters = [seq]
    if nodes:
        conditions.append(f"kind = {STARTED}")
    if thread is not None:
        conditions.append("thread = ?")
        parameters.append(thread)
    rows = database.integers(
        f"SELECT seq, graph_task, {IS_FIRST}, {IS_SECOND} FROM event"  # noqa: S608 - our words
        f" WHERE {' AND '.join(conditions)} ORDER BY seq {order} LIMIT ?",
        *parameters,
        abs(count) + 2,
    )
    found = sorted(
        Place(row + second, graph_task)
        for row, graph_task, *there in rows
        for second, is_there in enumerate(there)
        if is_there and (second or not nodes)
    )
    found = [place for place in found if (place.seq > seq if count > 0 else place.seq < seq)]
    nth = count - 1 if count > 0 else count
    return found[nth] if -len(found) <= nth < len(found) else None


def starts_near(database: Database, seq: int, count: int) -> list[NodeBegun]:
    """See :meth:`agviz.traces.reader.Trace.starts_near`."""
    after, order = (">=", "ASC") if count > 0 else ("<", "DESC")
    # The event is one behind its row.
    rows = database.integers(
        f"SELECT seq + 1, graph_task, node FROM event WHERE kind = {STARTED}"  # noqa: S608
        f" AND seq {after} ? ORDER BY seq {order} LIMIT ?",
        seq if count > 0 else seq - 1,
        abs(count),
    )
    return list(map(NodeBegun._make, rows))


def start_near(
    database: Database, task: GraphTaskRow, seq: int, count: int, thread: int | None
) -> int | None:
    """See :meth:`agviz.traces.reader.Trace.start_near`."""
    low, high, order = (
        (max(seq, task.begin_seq), task.last_seq, "ASC")
        if count > 0
        else (task.begin_seq, min(seq - 2, task.last_seq), "DESC")
    )
    rows = database.integers(
        f"SELECT seq + 1 FROM event WHERE kind = {STARTED} AND +graph_task = ?"  # noqa: S608
        f" AND seq BETWEEN ? AND ? {of(thread, 'thread')} ORDER BY seq {order} LIMIT 1 OFFSET ?",
        task.id,
        low,
        high,
        *given(thread),
        max(abs(count) - 1, 0),
    )
    return rows[0][0] if rows else None
