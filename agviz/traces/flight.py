"""Flight recorder: the last graph tasks stay in memory, and are written when something happens.

For a training of weeks whose every step is too much for a disk. What was recorded of the last few
graph tasks is forgotten again unless one of them has a non-finite gradient or fails, or the user
asks; then they go to the file, together with the rest of those that are under way.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from agviz.traces.codec import GRAPH_TASK_COLUMN, KIND_COLUMN
from agviz.traces.copies import Copier
from agviz.traces.journal import Journal
from agviz.traces.native_calls import NativeCall
from agviz.traces.recorder import Recorder
from agviz.traces.watchdog import STALL
from agviz.traces.writer import Introduction
from agviz_engine.emissions import CHECKED
from agviz_engine.events import NO_GRAPH_TASK

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from os import PathLike

    from agviz.traces.copies import Contents, Copy
    from agviz.traces.writer import SideRow, Writer
    from agviz_engine import events
    from agviz_engine.instruments import Live

log = logging.getLogger("agviz")

NONFINITE: Final = "nonfinite"
EXCEPTION: Final = "exception"
SIGNAL: Final = "signal"
OCCASIONS: Final = (NONFINITE, EXCEPTION, SIGNAL)
"""What a flight recorder can write upon."""

_MOST_HELD: Final = 4_000_000
"""Numbers and texts of events in memory, and as many again of the graph task that runs: each 4
million take some 160 MB."""
_COUNTS: Final = slice(7, 10)
"""Of NaN, +Inf and -Inf in the row of a NonFiniteChecked."""
_GRAPH_TASK_OF_NUMBERS: Final = 1
_RESERVED: Final = 4
"""What is written leaves one part in so many of the room for values to what is under way."""


class _Flight:
    """One call of backward or grad with the reentrant ones inside it."""

    __slots__ = ("beside", "copied", "ended", "is_written", "nonfinite", "tasks", "waiting")

    def __init__(self) -> None:
        self.tasks: list[int] = []
        self.waiting = Journal()
        self.beside: list[SideRow] = []
        self.copied: list[Contents] = []
        """What among the events can be let go of."""
        self.ended = False
        self.is_written = False
        """Whether it has gone to the file; what it does from now on goes there at once."""
        self.nonfinite = False


class FlightRecorder(Recorder):
    """Keeps the last graph tasks in memory, and writes them on an occasion.

    Non-finite gradients are an occasion where the graph task before had none: a training that has
    run into NaN is written once. A file into which nothing was written is removed at the end.

    Args:
        path: the file to write; an older trace of this name is replaced.
        on: the occasions, some of :data:`OCCASIONS`.
        keep: how many calls of backward, 1 or more, that under way included.
        recording: whatever else :class:`~agviz.traces.recorder.Recorder` takes.

    Raises:
        agviz.errors.TraceError: the file can't be written to.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        on: Collection[str],
        keep: int,
        **recording: Any,
    ) -> None:
        self._on = frozenset(on)
        self._most_kept = keep
        self._flights: deque[_Flight] = deque()
        """Oldest first; what was written and has ended is not among them."""
        self._flight_of: dict[int, _Flight] = {}
        self._held: dict[int, Journal] = {}
        """Where the events of each graph task go; of one that is written, to those that wait."""
        self._before_was_nonfinite = False
        self._has_written = False
        self._ring = threading.RLock()  # a signal's handler may interrupt its holder
        self._seen = 0
        """Numbers and texts in memory when it was last looked."""
        super().__init__(path, **recording)

    @property
    def has_written(self) -> bool:
        """Whether there was an occasion to write."""
        return self._has_written

    def write_down(self) -> int:
        """Write what is in memory, and the rest of the graph tasks under way as it happens.

        May be called from any thread.

        Returns:
            The number of calls of backward that were not in the file before.
        """
        with self._ring:
            self._make_room_for_the_rest()
            fresh = [flight for flight in self._flights if not flight.is_written]
            for flight in fresh:
                flight.is_written = True
                self._beside.extend(flight.beside)
                flight.beside.clear()
                flight.copied.clear()
                for task in flight.tasks:
                    self._held[task] = self._waiting
                self._move(flight)
                if flight.ended:
                    self._forget(flight)
            self._flights = deque(flight for flight in self._flights if not flight.ended)
            self._has_written = self._has_written or bool(fresh)
        self._wake.set()
        return len(fresh)

    def ended_with(self, error: BaseException) -> None:
        """An occasion."""
        super().ended_with(error)
        self.exception()

    def exception(self) -> None:
        """An exception has ended a graph task, or the program: an occasion."""
        if EXCEPTION in self._on:
            self.write_down()

    def close(self) -> None:
        """Complete the file, or remove it where there was no occasion to write."""
        was_recording = self.is_recording
        super().close()
        if was_recording and not self._has_written:
            self.path.unlink(missing_ok=True)

    def begin(self, event: events.GraphTaskBegun) -> None:
        """Make room for one more graph task."""
        with self._ring:
            flight = self._flight_of.get(event.parent)
            if flight is None:
                flight = _Flight()
                self._flights.append(flight)
            flight.tasks.append(event.graph_task)
            self._flight_of[event.graph_task] = flight
            self._held[event.graph_task] = self._waiting if flight.is_written else flight.waiting
        super().begin(event)
        with self._ring:
            if self._steps is not None and event.graph_task not in self._wanted:
                self._remove(flight)
            self._drop_old()

    def graph_task_finished(self, event: events.GraphTaskFinished, live: Live) -> None:
        """Let older graph tasks go."""
        super().graph_task_finished(event, live)
        self._end(event.graph_task)

    def graph_task_failed(self, event: events.GraphTaskFailed, live: Live) -> None:
        """An occasion."""
        super().graph_task_failed(event, live)
        flight = self._flight_of.get(event.graph_task)
        if flight is not None and not flight.is_written:
            self.exception()
        self._end(event.graph_task)

    def delegated_failed(self, event: events.DelegatedFailed, live: Live) -> None:
        """An occasion."""
        super().delegated_failed(event, live)
        self.exception()

    def _look_for_nonfinite(self, rows: Sequence[Any]) -> None:
        """An occasion, where the graph task before was finite."""
        if not any(rows[_COUNTS]):
            return
        flight = self._flight_of.get(rows[GRAPH_TASK_COLUMN])
        if flight is None or flight.nonfinite:
            return
        flight.nonfinite = True
        if NONFINITE in self._on and not self._before_was_nonfinite:
            self.write_down()

    def _look(self, writer: Writer) -> bool:
        before, self._seen = self._seen, self._count()
        if before != self._seen:
            self._watchdog.moved = True
        if not super()._look(writer):
            return False
        self._seen = self._count()  # what is in memory went to the file, which is no event
        self._watchdog.moved = False
        return True

    def _forward_so_far(self) -> list[SideRow]:
        """Only at the end, after an occasion: earlier nobody knows whether it is to be kept."""
        is_wanted = self._closing.is_set() and self._has_written
        return super()._forward_so_far() if is_wanted else []

    def _count(self) -> int:
        with self._ring:
            return sum(map(len, self._held.values()))

    def _writes_on(self, reason: str) -> bool:
        if reason == STALL:
            return False
        self.write_down()
        return True

    def _choice(self) -> str:
        last = f"the last {self._most_kept} backward passes on {', '.join(sorted(self._on))}"
        return ", ".join(filter(None, (last, super()._choice())))

    def _journals(self) -> tuple[Any, Any]:
        return self._note, self._note_numbers

    def _note(self, rows: Sequence[Any]) -> None:
        super()._note(rows)
        if rows and rows[KIND_COLUMN] == CHECKED:
            self._look_for_nonfinite(rows)

    def _keep(self, rows: Sequence[Any]) -> None:
        graph_task = rows[GRAPH_TASK_COLUMN]
        held = self._held.get(graph_task) if self.is_recording else None
        if held is None:
            if graph_task == NO_GRAPH_TASK:
                self._waiting.keep(rows)
            return
        held.keep(rows)
        if len(held) > _MOST_HELD and held is not self._waiting:
            self._drop_too_large(graph_task)

    def _keep_numbers(self, numbers: Sequence[Any]) -> None:
        held = self._held.get(numbers[_GRAPH_TASK_OF_NUMBERS]) if self.is_recording else None
        if held is not None:
            held.keep((), numbers)

    def _make_copier(self, most: int) -> Copier:
        return Copier(most, self._let_go_of_oldest)

    def _keep_copy(self, copy: Copy, row: tuple[Any, ...]) -> None:
        with self._ring:
            flight = self._flight_of.get(row[GRAPH_TASK_COLUMN])
            if flight is not None and not flight.is_written:
                flight.copied += [part.contents for part in copy.parts]
        self._keep(row)

    def _make_room_for_the_rest(self) -> None:
        """Have room for the values of the calls under way: what is written is not given up."""
        if self._copier is None:
            return
        missing = self._copier.room.most // _RESERVED - self._copier.room.free
        while missing > 0 and (freed := self._let_go_of_oldest()):
            missing -= freed

    def _let_go_of_oldest(self) -> int:
        """Give up the values of the oldest call of backward that has any; how many bytes."""
        with self._ring:
            for flight in self._flights:
                if flight.ended and not flight.is_written and (freed := self._let_go(flight)):
                    return freed
        return 0

    @staticmethod
    def _let_go(flight: _Flight) -> int:
        freed = sum([contents.let_go() for contents in flight.copied])
        flight.copied.clear()
        return freed

    def _keep_beside(self, thing: SideRow) -> None:
        if isinstance(thing, Introduction | NativeCall):
            self._beside.append(thing)
            return
        with self._ring:
            flight = self._flight_of.get(thing.graph_task)
            if flight is not None:
                (self._beside if flight.is_written else flight.beside).append(thing)

    def _end(self, graph_task: int) -> None:
        with self._ring:
            flight = self._flight_of.get(graph_task)
            if flight is None or flight.tasks[0] != graph_task:
                return
            flight.ended = True
            self._before_was_nonfinite = flight.nonfinite
            if flight.is_written:
                self._move(flight)  # what a thread had at hand while it was written
                self._remove(flight)

    def _move(self, flight: _Flight) -> None:
        held = flight.waiting.taken()
        self._waiting.keep(held.events, held.numbers)

    def _drop_old(self) -> None:
        held = sum(len(flight.waiting) for flight in self._flights)
        surplus = len(self._flights) - self._most_kept
        for flight in list(islice(self._flights, len(self._flights) - 1)):
            if surplus <= 0 and held <= _MOST_HELD:
                break
            if flight.ended:
                surplus -= 1
                held -= len(flight.waiting)
                self._remove(flight)

    def _drop_too_large(self, graph_task: int) -> None:
        with self._ring:
            flight = self._flight_of.get(graph_task)
            if flight is None or flight.is_written:
                return
            self._remove(flight)
            flight.waiting.clear()
            flight.beside.clear()
        log.warning(
            "backward pass %d is too large to be kept in memory and is left out of the flight "
            "recorder; --nodes keeps less of it",
            graph_task,
        )

    def _remove(self, flight: _Flight) -> None:
        if flight in self._flights:
            self._flights.remove(flight)
        if not flight.is_written:
            self._let_go(flight)
        self._forget(flight)

    def _forget(self, flight: _Flight) -> None:
        for task in flight.tasks:
            self._held.pop(task, None)
            self._flight_of.pop(task, None)

    def _stop(self, why: str) -> None:
        super()._stop(why)
        with self._ring:
            for flight in list(self._flights):
                self._forget(flight)
            self._flights.clear()

    def _forked(self) -> None:
        super()._forked()
        self._ring = threading.RLock()
        self._flights.clear()
        self._flight_of.clear()
        self._held.clear()
