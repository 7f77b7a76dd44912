"""What a program does while no backward pass is under way, and how its recording ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agviz.analysis.blocked import none_goes_on, who_is_gone, why_it_waits
from agviz.analysis.code_search import user_files
from agviz.analysis.hang import STILL_NS
from agviz.analysis.thread_status import outside_passes
from agviz.traces.dumps import EXIT
from agviz.traces.rows import visible
from agviz.words.units import duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.thread_status import ThreadStatus
    from agviz.traces.reader import Trace
    from agviz.traces.rows import DumpedThread, DumpRow, Frame

_MOST_SHOWN: Final = 4
_MAIN: Final = "MainThread"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outside:
    """A program that is in no backward pass: it does something else, hangs, or was ended."""

    graph_task: int | None
    """The last backward pass, which came to its end; None: there was none."""
    is_growing: bool
    """Whether the process is alive, and records."""
    is_exit: bool
    """Whether it called ``os._exit``."""
    threads: tuple[DumpedThread, ...]
    """What was seen of them since the last event; empty: nothing was."""
    still_ns: int
    """From the last event until the threads were looked at last."""
    has_handler: bool = False
    """Whether the program handles signals: one may end what the main thread waits for."""

    @property
    def is_stuck(self) -> bool:
        """Whether all threads wait for each other, as far as they are the program's, for ever."""
        return not (self.is_exit or self.has_handler) and none_goes_on(self._statuses)

    @property
    def _statuses(self) -> list[ThreadStatus]:
        seen = sorted(self.threads, key=lambda thread: thread.name != _MAIN)
        return list(map(outside_passes, seen))

    @property
    def frame(self) -> Frame | None:
        """Where the main thread is."""
        return next((visible(thread.stack) for thread in self._sorted()), None)

    @property
    def heading(self) -> str:
        """That no backward is running, and what came of it."""
        if self.is_exit:
            return f"the program called os._exit{self._after()}, in no backward pass"
        if self.is_stuck:
            is_ = "is" if self.is_growing else "was"
            return f"no backward {is_} running{self._after()}, and no thread can go on"
        if self.is_growing:
            at = "" if self.frame is None else f"; {self._sorted()[0].name} is at {self.frame}"
            return f"no backward is running{at}"
        return f"the recording was cut off{self._after()}: the process was ended from outside"

    @property
    def paragraph(self) -> str:
        """Where the threads are."""
        return " ".join(self._sentences())

    def _after(self) -> str:
        return "" if self.graph_task is None else f" after backward pass {self.graph_task}"

    def _sentences(self) -> Iterator[str]:
        if self.is_stuck:
            statuses = self._statuses
            said = " ".join(why_it_waits(statuses[0], statuses))
            at = "" if self.frame is None else f" at {self.frame.file}:{self.frame.line}"
            yield f"Since {duration(self.still_ns)} {statuses[0].name} stands still{at}. {said}"
            yield from (
                f"{status.name} is at {visible(status.stack)}."
                for status in statuses[1:]
                if f"{status.name} is at " not in said
            )
            yield from who_is_gone(statuses)
            return
        if not self.is_growing and not self.is_exit:
            yield (
                "It was killed or crashed, without an exit handler. What happened in its last"
                " moments, up to a second, is in no file: a backward pass may have begun."
            )
        seen = [(thread.name, visible(thread.stack)) for thread in self._sorted()]
        shown = [f"{name} {'is' if self.is_growing else 'was'} at {at}" for name, at in seen if at]
        if self.still_ns >= STILL_NS:
            last = "none was recorded" if self.graph_task is None else f"pass {self.graph_task}"
            least = "" if self.is_growing or self.is_exit else "at least "
            still = f"{least}{duration(self.still_ns)}"
            yield f"For {still} there was no event of backward; the last: {last}."
        if shown:
            more = f", and {len(shown) - _MOST_SHOWN} more" if len(shown) > _MOST_SHOWN else ""
            yield f"{', '.join(shown[:_MOST_SHOWN])}{more}."
        if self.is_growing:
            yield "Whether it hangs there or works can't be told from its backward passes."

    def _sorted(self) -> list[DumpedThread]:
        seen = [thread for thread in self.threads if visible(thread.stack) is not None]
        return sorted(seen, key=lambda thread: thread.name != _MAIN)

    def details(self) -> Iterator[str]:
        """The stacks, line by line."""
        for thread in self._sorted():
            yield f"{thread.name}:"
            yield from (f"  at {frame}" for frame in thread.stack if not frame.hidden)

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it; times in ns."""
        return {
            "kind": "outside",
            "after_graph_task": self.graph_task,
            "growing": self.is_growing,
            "os_exit": self.is_exit,
            "still_ns": self.still_ns,
            "threads": [
                {"name": thread.name, "stack": [str(frame) for frame in thread.stack]}
                for thread in self.threads
            ],
        }


def outside(trace: Trace) -> Outside | None:
    """What is known of a program between backward passes; None: it ended regularly, or goes on.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    if trace.meta.end_ns is not None or trace.meta.stopped:
        return None
    count = trace.event_count()
    last = trace.events(offset=count - 1, limit=1) if count else []
    last_ns = last[0].time_ns if last else trace.meta.start_ns
    dump = _since(trace, last_ns)
    found = Outside(
        graph_task=max(trace.graph_tasks.outermost.ids, default=None),
        is_growing=trace.is_growing,
        is_exit=dump is not None and dump.reason == EXIT,
        threads=() if dump is None else dump.threads,
        still_ns=0 if dump is None else dump.time_ns - last_ns,
        has_handler=any(
            "signal.signal(" in line for file in user_files(trace) for line in trace.source(file)
        ),
    )
    is_soon = trace.is_growing and found.still_ns < STILL_NS
    return None if is_soon and not found.is_stuck else found


def _since(trace: Trace, last_ns: int) -> DumpRow | None:
    """What the threads were doing after the last event."""
    return next((dump for dump in reversed(trace.dumps()) if dump.time_ns >= last_ns), None)
