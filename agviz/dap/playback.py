"""A recording that is run forwards and backwards: a playhead just behind one of its events."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from agviz.analysis.verdict import verdicts
from agviz.dap.arguments import RequestError
from agviz.dap.breakpoints import (
    FILTERS,
    PlaceToStop,
    RecordedStops,
)
from agviz.dap.instant import MOST_OUTPUTS, Instant
from agviz.dap.variables import Variable, of_node
from agviz.traces.events import Place
from agviz.words.health import nonfinite
from agviz.words.labels import queue_label
from agviz.words.units import plural
from agviz_engine import events as e

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz.dap.breakpoints import SetBreakpoint
    from agviz.traces.reader import Trace

Move = Literal["node", "event", "out", "stop"]
"""How far: a node, an event, out of the pass, to the next stop."""
_NEVER: Final = 2**62
_BEGINNING: Final = "This is where the recording begins."
_END: Final = "This is the end of the recording."
_GROWING: Final = "This is the end of the recording for now: it still grows."


class Halt(NamedTuple):
    """A stop, and why it is one."""

    thread: int
    reason: str
    """As in the protocol."""
    text: str = ""
    """What there is to say of it."""
    breakpoints: tuple[int, ...] = ()


class Fault(NamedTuple):
    """What is wrong where the playhead is."""

    name: str
    text: str


class Playback:
    """Moves a playhead through all graph tasks of a recording.

    Args:
        trace: the recording.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._breakpoints: list[SetBreakpoint] = []
        self._filters: Sequence[str] = FILTERS
        self._stops: tuple[int, RecordedStops] | None = None
        """As of a version of the recording."""
        self._instant: Instant | None = None

    @property
    def instant(self) -> Instant:
        """Where the playhead is.

        Raises:
            RequestError: nothing has been recorded yet.
        """
        if self._instant is None:
            raise RequestError("the recording holds no backward pass")
        return self._instant

    @property
    def stops(self) -> RecordedStops:
        """Where it stops."""
        version = self.trace.version
        if self._stops is None or self._stops[0] != version:
            found = RecordedStops(self.trace, self._breakpoints, self._filters)
            self._stops = version, found
        return self._stops[1]

    def set_stops(self, breakpoints: Sequence[SetBreakpoint], filters: Sequence[str]) -> None:
        """Stop there from now on, and nowhere else."""
        self._breakpoints, self._filters, self._stops = list(breakpoints), filters, None

    def begin(self) -> Halt:
        """To the first node of the first pass."""
        begun = self.trace.starts_near(-1, 1)
        if begun:
            return self._go(Place(begun[0].seq, begun[0].graph_task), "entry")
        first = self.trace.near(-1, 1)
        if first is not None:
            return self._go(first, "entry")
        (verdict, *_) = verdicts(self.trace)
        return Halt(0, "entry", f"{verdict.heading}. {verdict.paragraph}")

    def run(self) -> Halt:
        """From the beginning to the first place to stop."""
        first = self.begin()
        if self._instant is None:
            return first
        found = self.stops.next(-1)
        return self._to_the_end() if found is None else self._stop(found)

    def to(self, seq: int, graph_task: int) -> None:
        """Just behind an event."""
        self._instant = Instant(self.trace, Place(seq, graph_task))

    def move(self, move: Move, by: int, thread: int | None = None) -> Halt:
        """Go on (1) or back (-1), as far as to the first place to stop on the way.

        Args:
            move: how far.
            by: 1 or -1.
            thread: only nodes or events of this thread; None: of any.
        """
        here = self.instant
        target = self._target(move, by, thread)
        bound = None if target is None else target.seq
        find = self.stops.next if by > 0 else self.stops.previous
        found = find(here.seq, bound)
        if found is not None:
            return self._stop(found)
        if target is not None:
            return self._go(target, "step")
        return self._to_the_end() if by > 0 else self._to_the_beginning()

    def _target(self, move: Move, by: int, thread: int | None) -> Place | None:
        """Where a step leads; None: to the end, or a place to stop."""
        here = self.instant
        if move == "stop":
            return None
        if move == "out":
            return self._way_out()
        return self.trace.near(here.seq, by, thread=thread, nodes=move == "node")

    def _way_out(self) -> Place | None:
        """The end of the graph task, or of the one around it where that is reached."""
        trace, here = self.trace, self.instant
        number = here.nodes(here.thread)[0].graph_task if here.nodes(here.thread) else None
        task = here.task if number is None else trace.graph_task(number)
        while task.end_seq is not None and task.end_seq <= here.seq and task.parent >= 0:
            task = trace.graph_task(task.parent)
        if task.end_seq is not None and task.end_seq <= here.seq:
            later = (each for each in trace.graph_tasks if each.begin_seq > here.seq)
            following = next((each for each in later if each.parent < 0), None)
            if following is None:
                return None
            task = following
        return None if task.end_seq is None else Place(task.end_seq, task.id)

    def _go(self, place: Place, reason: str, text: str = "") -> Halt:
        self.to(place.seq, place.graph_task)
        return Halt(self.instant.thread, reason, text)

    def _stop(self, found: PlaceToStop) -> Halt:
        self.to(found.seq, found.graph_task)
        thread = self.instant.thread
        if not found.filter:
            return Halt(thread, "breakpoint", breakpoints=found.breakpoints)
        return Halt(thread, "exception", self.fault_text, found.breakpoints)

    @property
    def fault_text(self) -> str:
        """What is wrong where the playhead is; empty: nothing."""
        fault = self._fault()
        return "" if fault is None else fault.text

    def _to_the_end(self) -> Halt:
        last = self.trace.near(_NEVER, -1)
        text = _GROWING if self.trace.is_growing else _END
        return self._go(last or self.instant.place, "end", text)

    def _to_the_beginning(self) -> Halt:
        """To the first node; from there, to the first event."""
        begun = self.trace.starts_near(-1, 1)
        if begun and begun[0].seq < self.instant.seq:
            return self.begin()._replace(reason="beginning", text=_BEGINNING)
        first = self.trace.near(-1, 1)
        return self._go(first or self.instant.place, "beginning", _BEGINNING)

    # What there is to know where it is.

    def threads(self) -> list[tuple[int, str]]:
        """Threads of the engine: ids and names."""
        found = [
            (row.id, f"T{row.id} {queue_label(row.queue)}{f' ({row.name})' if row.name else ''}")
            for row in self.trace.threads
        ]
        return found or [(0, "T0")]

    def _fault(self) -> Fault | None:
        """What the event is that the playhead is behind, where that is a failure or a finding."""
        here = self.instant
        event = here.event
        match event:
            case e.NodeFailed() | e.GraphTaskFailed():
                return Fault(event.error, f"{event.error}: {event.message}")
            case e.NonFiniteChecked() if found := nonfinite(event.nan, event.posinf, event.neginf):
                by = here.label(event.graph_task, event.node)
                return Fault("non-finite", f"{found} in output {event.output} of {by}")
        health = self.trace.health_at(here.seq)
        found = "" if health is None else nonfinite(health.nan, health.posinf, health.neginf)
        if health is not None and found:
            by = here.label(health.graph_task, health.node)
            return Fault("non-finite", f"{found} in slot {health.slot} of {by} ({health.role})")
        return None

    def fault(self) -> tuple[Fault, str]:
        """What is wrong where the playhead is, and agviz's verdict of the pass.

        Raises:
            RequestError: nothing is wrong there.
        """
        found = self._fault()
        if found is None:
            raise RequestError("there is no failure and no non-finite gradient at this event")
        number = self.instant.place.graph_task
        while (parent := self.trace.graph_task(number).parent) >= 0:
            number = parent
        said = []
        for verdict in verdicts(self.trace, number):
            lines = [verdict.heading, *filter(None, [verdict.line]), verdict.paragraph]
            if verdict.source:
                lines.insert(2, f"    {verdict.source}")
            said.append("\n".join(filter(None, lines)))
        return found, "\n\n".join(said)

    def find(self, wanted: str) -> tuple[str, list[Variable]]:
        """A node of the pass by its number, its name, its parameter or its module, and its facts.

        Raises:
            RequestError: there is none.
        """
        wanted = wanted.strip()
        here = self.instant
        number = here.place.graph_task
        node = self._named(number, wanted)
        if node is None:
            raise RequestError(
                f"no node of this pass has the number, name, parameter or module {wanted[:100]!r};"
                " write one like #12, AddmmBackward0, encoder.linear1.weight"
            )
        row = self.trace.node(number, node, most_outputs=MOST_OUTPUTS)
        scopes = [Variable(each.name, "", children=each.variables) for each in of_node(here, row)]
        return f"{here.label(number, node)}, {here.status(row).value}", scopes

    def _named(self, graph_task: int, wanted: str) -> int | None:
        if re.fullmatch(r"#\d{1,9}", wanted):
            begin = self.trace.graph_task(graph_task).begin_seq
            order = int(wanted[1:])
            seq = self.trace.start_near(graph_task, begin, order) if order else None
            if seq is None:
                return None
            (event,) = self.trace.events_of([seq])
            return getattr(event, "node", None)
        found = self.trace.nodes_with(graph_task, lambda text: _is_named(text, wanted))
        return found[0][0] if found else None


def _is_named(text: str, wanted: str) -> bool:
    return text == wanted or text.rpartition("::")[2] == wanted


def summary(trace: Trace) -> str:
    """What a recording holds, in a line."""
    passes = plural(
        sum(task.parent < 0 for task in trace.graph_tasks), "backward pass", "backward passes"
    )
    return f"{trace.path}: {passes}, {plural(trace.event_count(), 'event')}"
