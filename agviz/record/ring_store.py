"""Flight recorder: the last graph tasks stay in memory, and are written when something happens.

For a training of weeks whose every step is too much for a disk. What was recorded of the last few
graph tasks is forgotten again unless one of them has a non-finite gradient or fails, or the user
asks; then they go to the file, together with the rest of those that are under way.
"""

from __future__ import annotations

import logging
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from agviz.record.journal import Journal
from agviz.record.stores import EXCEPTION, NONFINITE, OVERDUE, Store
from agviz.record.writer import Introduction
from agviz.traces.codec import (
    COPIED,
    GRAPH_TASK_COLUMN,
    KIND_COLUMN,
    NONFINITE_COLUMNS,
    OBJECT_COLUMN,
)
from agviz.traces.left_out import LeftOut
from agviz.traces.native_calls import NativeCall
from agviz_engine.emissions import CHECKED
from agviz_engine.events import NO_GRAPH_TASK

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from agviz.record.copies import CopiedBytes
    from agviz.record.file_thread import FileThread
    from agviz.record.writer import SideRow
    from agviz_engine.events import GraphTaskBegun

log = logging.getLogger("agviz")

_MOST_HELD: Final = 4_000_000
"""Numbers and texts of events in memory, and as many again of the graph task that runs: each 4
million take some 160 MB."""
_GRAPH_TASK_OF_NUMBERS: Final = 1
_RESERVED: Final = 4
"""Divisor: this part of the room for copies is left free for passes still running."""


class _Flight:
    """One call of backward or grad with the reentrant ones inside it."""

    __slots__ = ("copied", "ended", "held", "journal", "nonfinite", "side", "tasks")

    def __init__(self) -> None:
        self.tasks: list[int] = []
        self.held = Journal()
        self.journal = self.held
        """Where its rows go: the file's journal, once it is written."""
        self.side: deque[SideRow] = deque()
        """Where its side rows go: those of the file, once it is written."""
        self.copied: list[CopiedBytes] = []
        """Copies among the events that can be forgotten."""
        self.ended = False
        self.nonfinite = False

    @property
    def is_written(self) -> bool:
        """Whether it has gone to the file; what it does from now on goes there at once."""
        return self.journal is not self.held

    def let_go(self) -> int:
        """Forget the copies; how many bytes that were."""
        freed = sum([contents.let_go() for contents in self.copied])
        self.copied.clear()
        return freed


class RingStore(Store):
    """Keeps the last graph tasks in memory, and writes them on an occasion.

    Non-finite gradients are an occasion where the graph task before had none: a training that has
    run into NaN is written once. A file into which nothing was written is removed at the end.

    Args:
        on: the occasions, some of :data:`~agviz.record.stores.OCCASIONS`.
        keep: how many calls of backward, 1 or more, that under way included.
    """

    def __init__(self, *, on: Collection[str], keep: int) -> None:
        self._on = frozenset((*on, OVERDUE))
        self._most_kept = keep
        self._flights: deque[_Flight] = deque()
        """Oldest first; what was written and has ended is not among them."""
        self._flight_of: dict[int, _Flight] = {}
        self._before_was_nonfinite = False
        self.make_room = self._let_go_of_oldest
        self.choice = f"the last {keep} backward passes on {', '.join(sorted(on))}"

    def bind(self, file: FileThread) -> None:
        """Keep rows in memory from now on."""
        super().bind(file)
        self.rows, self.numbers, self.side = self._keep, self._keep_numbers, self._keep_side
        file.is_wanted = False
        file.watchdog.ignores_stalls = True

    @property
    def has_written(self) -> bool:
        """Whether there was an occasion to write."""
        return self._file.is_wanted

    @property
    def has_calls_between(self) -> bool:
        """Only at the end, after an occasion: earlier nobody knows whether they are to be kept."""
        return self._file.is_closing and self.has_written

    def write_down(self) -> int:
        """Write what is in memory, and the rest of the graph tasks under way as it happens.

        Any thread may call this.

        Returns:
            The number of calls of backward that were not in the file before.
        """
        with self._file.lock:
            self._make_room_for_the_rest()
            fresh = [flight for flight in self._flights if not flight.is_written]
            for flight in fresh:
                self._file.side.extend(flight.side)
                flight.side, flight.journal = self._file.side, self._file.journal
                flight.copied.clear()
                self._move(flight)
                if flight.ended:
                    self._forget(flight)
            self._flights = deque(flight for flight in self._flights if not flight.ended)
            self._file.is_wanted |= bool(fresh)
        self._file.wake()
        return len(fresh)

    def occasion(self, name: str, graph_task: int = NO_GRAPH_TASK) -> None:
        """Write, if it is asked for; non-finite gradients only where the call before had none."""
        if name == NONFINITE:
            flight = self._flight_of.get(graph_task)
            if flight is None or flight.nonfinite:
                return
            flight.nonfinite = True
            if self._before_was_nonfinite:
                return
        if name in self._on:
            self.write_down()

    def begin(self, event: GraphTaskBegun) -> None:
        """Make room for one more graph task, and let older ones go."""
        with self._file.lock:
            flight = self._flight_of.get(event.parent)
            if flight is None:
                flight = _Flight()
                self._flights.append(flight)
            flight.tasks.append(event.graph_task)
            self._flight_of[event.graph_task] = flight
            self._drop_old()

    def end(self, graph_task: int, *, has_failed: bool) -> None:
        """A failure is an occasion."""
        flight = self._flight_of.get(graph_task)
        if has_failed and flight is not None and not flight.is_written:
            self.occasion(EXCEPTION)
        with self._file.lock:
            flight = self._flight_of.get(graph_task)
            if flight is None or flight.tasks[0] != graph_task:
                return
            flight.ended = True
            self._before_was_nonfinite = flight.nonfinite
            if flight.is_written:
                self._move(flight)  # what a thread had at hand while it was written
                self._remove(flight)

    def forget(self) -> None:
        """Keep nothing any longer."""
        with self._file.lock:
            self._flights.clear()
            self._flight_of.clear()

    def _keep(self, rows: Sequence[Any]) -> None:
        graph_task, kind = rows[GRAPH_TASK_COLUMN], rows[KIND_COLUMN]
        flight = self._flight_of.get(graph_task)
        if flight is None:
            if graph_task == NO_GRAPH_TASK:
                self._file.journal.keep(rows)
            return
        if kind == COPIED:
            with self._file.lock:
                if not flight.is_written:
                    flight.copied += [part.contents for part in rows[OBJECT_COLUMN].parts]
        flight.journal.keep(rows)
        if len(flight.held) > _MOST_HELD:
            self._drop_too_large(flight, graph_task)
        if kind == CHECKED and any(rows[NONFINITE_COLUMNS]):
            self.occasion(NONFINITE, graph_task)

    def _keep_numbers(self, numbers: Sequence[Any]) -> None:
        flight = self._flight_of.get(numbers[_GRAPH_TASK_OF_NUMBERS])
        if flight is not None:
            flight.journal.keep((), numbers)

    def _keep_side(self, thing: SideRow) -> None:
        if isinstance(thing, Introduction | NativeCall | LeftOut):
            self._file.side.append(thing)
            return
        with self._file.lock:
            flight = self._flight_of.get(thing.graph_task)
            if flight is not None:
                flight.side.append(thing)

    def _make_room_for_the_rest(self) -> None:
        """Have room for the values of the calls under way: what is written is not given up."""
        if self._file.copier is None:
            return
        room = self._file.copier.room
        missing = room.most // _RESERVED - room.free
        while missing > 0 and (freed := self._let_go_of_oldest()):
            missing -= freed

    def _let_go_of_oldest(self) -> int:
        """Give up the values of the oldest call of backward that has any; how many bytes."""
        with self._file.lock:
            for flight in self._flights:
                if flight.ended and not flight.is_written and (freed := flight.let_go()):
                    return freed
        return 0

    def _move(self, flight: _Flight) -> None:
        held = flight.held.taken()
        self._file.journal.keep(held.events, held.numbers)

    def _drop_old(self) -> None:
        held = sum(len(flight.held) for flight in self._flights)
        surplus = len(self._flights) - self._most_kept
        for flight in list(islice(self._flights, len(self._flights) - 1)):
            if surplus <= 0 and held <= _MOST_HELD:
                break
            if flight.ended:
                surplus -= 1
                held -= len(flight.held)
                self._remove(flight)

    def _drop_too_large(self, flight: _Flight, graph_task: int) -> None:
        with self._file.lock:
            if flight.is_written or flight not in self._flights:
                return
            self._remove(flight)
            flight.held.clear()
            flight.side.clear()
        log.warning(
            "backward pass %d is too large to be kept in memory and is left out of the flight "
            "recorder; --nodes keeps less of it",
            graph_task,
        )

    def _remove(self, flight: _Flight) -> None:
        if flight in self._flights:
            self._flights.remove(flight)
        if not flight.is_written:
            flight.let_go()
        self._forget(flight)

    def _forget(self, flight: _Flight) -> None:
        for task in flight.tasks:
            self._flight_of.pop(task, None)
