"""How far calls of backward are, and what all threads are doing when nothing moves.

Note [Looking where nothing moves]
A hook that never returns emits nothing, and a process that is killed can't be asked. So the
recorder's thread looks whether anything has happened since it last wrote. Where nothing has for a
second in a backward pass, for two outside of one, where a program may hang too, and again after
five, it writes what every thread is doing: its stack, what of the engine it is in the midst of
(``agviz_engine.under_way``), and what it waits for. It looks again after twice that time, and so
on, as long as nothing happens. A thread that holds the interpreter lock all the while keeps it from
looking.
"""

from __future__ import annotations

import itertools
import logging
import sys
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Final

from agviz.record.files import Files, stack_of
from agviz.record.frame_locals import frames_of_others
from agviz.record.holding import Holding
from agviz.record.waiting import waits
from agviz.traces.dumps import RAISED, STALL, TIMEOUT, Dump, Raised
from agviz.traces.rows import DumpedCall, DumpedThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import FrameType

    from agviz.traces.rows import Frame
    from agviz_engine.under_way import Call

log = logging.getLogger("agviz")

PATIENCE_NS: Final = 5_000_000_000
"""After this time without an event the threads are looked at."""
INSIDE_NS: Final = 1_000_000_000
"""The same while a backward pass is under way, for the first time: who asks soon gets an answer."""
OUTSIDE_NS: Final = 2_000_000_000
"""The same while none is."""


def dumped(files: Files) -> list[DumpedThread]:
    """What the threads of this process are doing, but for agviz's own.

    Args:
        files: gives files the names that a reader knows them by.
    """
    from agviz_engine.under_way import calls_of

    found = []
    threads = {thread.ident: thread for thread in threading.enumerate()}
    frames = frames_of_others()
    waiting = waits(frames, files)
    for ident, innermost in frames.items():
        thread = threads.get(ident)
        name = f"thread {ident}" if thread is None else thread.name
        native_id = None if thread is None else thread.native_id
        stack = stack_of(innermost, files)
        calls = _calls(calls_of(ident), files)
        found.append(DumpedThread(name, native_id or 0, stack, calls, waiting.get(ident)))
    return found


def _raised(error: BaseException, files: Files) -> DumpedThread:
    """Where an exception that this thread handles was raised, as far as the engine called it."""
    from agviz_engine.under_way import calls_to

    lines: dict[FrameType, int] = {}
    trace, innermost = error.__traceback__, sys._getframe(1)
    while trace is not None:
        innermost = trace.tb_frame
        lines[innermost] = trace.tb_lineno  # the frame itself has gone on to its last line
        trace = trace.tb_next
    thread = threading.current_thread()
    calls = _calls(calls_to(error), files)
    stack = stack_of(innermost, files, lines)
    return DumpedThread(thread.name, thread.native_id or 0, stack, calls)


def _calls(calls: Iterable[Call], files: Files) -> tuple[DumpedCall, ...]:
    return tuple(
        DumpedCall(*call[:4], files.frame(call.file, call.line, call.name) if call.file else None)
        for call in calls
    )


class Watchdog:
    """When to look at the threads, and what they do: Note [Looking where nothing moves].

    All but :meth:`ask` and the attributes is for the recorder's thread alone.

    Args:
        start_ns: ``time.monotonic_ns()`` at the start of the recording.
        timeout: seconds that a graph task may take; after them the threads are looked at whatever
            was seen before; None: any time.
        files: gives files the names that a reader knows them by; None: made when needed.
    """

    def __init__(self, start_ns: int, timeout: float | None, files: Files | None) -> None:
        self.under_way: dict[int, int] = {}
        """Graph tasks that are recorded and have not ended, and when they began (monotonic, ns)."""
        self.moved = False
        """Whether anything has happened since it was last looked."""
        self.ignores_stalls = False
        """Whether only a timeout is a reason to look at the threads."""
        self.holding = Holding(start_ns)
        """Who is held by a debugger: a program that is held does not hang."""
        self._start_ns = start_ns
        self._timeout_ns = None if timeout is None else int(timeout * 1e9)
        self._files = files
        self._asked: deque[str] = deque()
        self._next_number = itertools.count(1).__next__
        self._since_ns = 0
        self._next_ns = 0
        self._has_begun = False
        self._has_looked = False
        self._overdue: set[int] = set()
        """Graph tasks under way of which it was said that they take longer than the timeout."""
        self._begin_rest()

    def source(self, frame: Frame) -> str:
        """Source line of a frame; empty where that can't be had."""
        return "" if self._files is None else self._files.source(frame)

    def whole_source(self, frame: Frame) -> str:
        """Text of the file of a frame; empty where that can't be had."""
        return "" if self._files is None else self._files.whole_source(frame)

    def ask(self, reason: str) -> None:
        """Have the threads looked at when something is written next; on any thread."""
        self._asked.append(reason)

    def due(self) -> str | None:
        """The reason to look at the threads now, :data:`STALL` or :data:`TIMEOUT`; None: none.

        A pass under way for longer than the timeout counts, whatever goes on in it: a hook that
        calls backward again and again never counts as idle.
        """
        moved, self.moved = self.moved or self.holding.holds, False
        # Before the first event the program may be importing torch, which looking would, too.
        self._has_begun = self._has_begun or moved or bool(self.under_way)
        if moved or not self._has_begun:
            self._begin_rest()
        now_ns = time.monotonic_ns()
        if self._is_overdue(now_ns):
            return TIMEOUT
        still_ns = now_ns - max(self._since_ns, self.holding.until_ns)
        if self.ignores_stalls:
            return None
        if still_ns < self._next_ns:
            is_due = still_ns >= (INSIDE_NS if self.under_way else OUTSIDE_NS)
            is_first = is_due and not self._has_looked
            self._has_looked = self._has_looked or is_first
            return STALL if is_first else None
        self._has_looked = True
        self._next_ns *= 2
        return STALL

    def _is_overdue(self, now_ns: int) -> bool:
        """Whether a pass has come to last longer than the timeout since it was asked."""
        if self._timeout_ns is None:
            return False
        self._overdue &= self.under_way.keys()
        late = {
            number
            for number, began_ns in list(self.under_way.items())
            if now_ns - max(began_ns, self.holding.until_ns) >= self._timeout_ns
        }
        is_new = bool(late) and not self._overdue
        self._overdue |= late
        return is_new

    def _begin_rest(self) -> None:
        self._since_ns = time.monotonic_ns()
        self._next_ns = PATIENCE_NS
        self._has_looked = False

    def dumps(self) -> list[Dump]:
        """What was asked for."""
        return [self._dump(self._asked.popleft()) for _ in range(len(self._asked))]

    @property
    def files(self) -> Files:
        """Gives files the names that a reader knows them by."""
        if self._files is None:
            self._files = Files()
        return self._files

    def raised(self, graph_task: int, error: BaseException) -> Raised:
        """Where the exception came from that this thread handles; on any thread."""
        return Raised(graph_task, self._made(RAISED, lambda: [_raised(error, self.files)]))

    def _dump(self, reason: str) -> Dump:
        return self._made(reason, lambda: dumped(self.files))

    def _made(self, reason: str, look: Callable[[], list[DumpedThread]]) -> Dump:
        number, since_ns = self._next_number(), time.monotonic_ns() - self._start_ns
        threads: list[DumpedThread] = []
        # To look imports what the engine knows of threads, and torch; while another thread does so,
        # neither is whole.
        if not hasattr(sys.modules.get("agviz_engine.thread_state"), "is_traced"):
            return Dump(number, since_ns, reason, threads)
        try:
            threads = look()
        except Exception as error:  # noqa: BLE001 - whatever happens here, the recording goes on
            log.warning("what the threads are doing is not recorded (%r)", error)
        return Dump(number, since_ns, reason, threads)
