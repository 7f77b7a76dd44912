"""SIGUSR1: print where every thread is, and write what a flight recorder keeps.

Note [A signal while nothing moves]
Python runs a signal's handler in the main thread between two bytecodes; a main thread that is
inside torch, or waits, may never get there. So three things answer the signal, from the surest on:
``faulthandler`` prints all Python stacks at once, from the C handler, even where the interpreter
lock is never released. The same C handler writes to a pipe (``signal.set_wakeup_fd``) at which a
thread of ours waits, which then asks the trace. Where another library holds that pipe, Python's own
handler wakes the thread as soon as the main thread gets to run it. A handler that the program had
is called as before; one that it sets later takes this one's place.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final, cast

from agviz.hang_report import report, say
from agviz.record.descriptors import identity_of
from agviz.record.ring_store import RingStore
from agviz.traces.dumps import SIGNAL
from agviz.words.paths import shown

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    from agviz.record.recorder import Recorder

NUMBER: Final = getattr(signal, "SIGUSR1", None)
"""None where the operating system has no such signal."""

_STOP: Final = b"\0"
_STDERR: Final = 2


class SignalHandler:
    """Answers the signal from now on, until :meth:`stop`.

    Signals can be set up in the main thread only; in another, and where there is no SIGUSR1, this
    says so and does nothing.

    Args:
        recorder: gives what is asked; None while no file is open.
    """

    def __init__(self, recorder: Callable[[], Recorder | None]) -> None:
        self._recorder = recorder
        self._is_set = False
        if NUMBER is None or threading.current_thread() is not threading.main_thread():
            say("SIGUSR1 can't be handled here: start the recording in the main thread")
            return
        self._read, self._write = os.pipe()
        self._identity = identity_of(self._read)
        os.set_blocking(self._write, False)
        self._handler = self._handle
        self._was_registered = cast("Any", faulthandler).unregister(NUMBER)
        self._before: Any = signal.signal(NUMBER, self._handler)
        faulthandler.register(NUMBER, file=_STDERR, chain=True)
        self._fd_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        if self._fd_before >= 0:
            signal.set_wakeup_fd(self._fd_before)
        self._is_set = True
        self._thread = threading.Thread(target=self._wait, name="agviz-signal", daemon=True)
        self._thread.start()
        _handlers.add(self)

    def stop(self) -> None:
        """Leave the signal as it was found, unless somebody else has taken it since."""
        if self._is_set:
            self._restore()
            if identity_of(self._write) == self._identity:
                os.write(self._write, _STOP)
            self._thread.join(timeout=10.0)

    def _forked(self) -> None:
        """The same in a child, where the thread does not exist and the pipe is not ours."""
        if self._is_set:
            self._restore()
            self._close()

    def _restore(self) -> None:
        self._is_set = False
        if NUMBER is None or threading.current_thread() is not threading.main_thread():
            return
        if self._fd_before < 0:
            now = signal.set_wakeup_fd(-1)
            if now not in {-1, self._write}:
                signal.set_wakeup_fd(now)
        if signal.getsignal(NUMBER) == self._handler:
            faulthandler.unregister(NUMBER)
            signal.signal(NUMBER, signal.SIG_DFL if self._before is None else self._before)
            if self._was_registered:
                faulthandler.register(NUMBER, chain=True)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._fd_before >= 0:
            with contextlib.suppress(OSError):
                os.write(self._write, bytes([number]))
        if callable(self._before):
            self._before(number, frame)

    def _wait(self) -> None:
        while True:
            received = os.read(self._read, 1_000)
            if not received or _STOP in received:
                break
            if NUMBER is not None and NUMBER in received:
                try:
                    self._answer()
                except Exception as error:  # noqa: BLE001 - whatever happens, the program goes on
                    say(f"can't say where the threads are: {error!r}")
        self._close()

    def _close(self) -> None:
        for number in (self._read, self._write):  # unless a program has closed and reused it
            if identity_of(number) == self._identity:
                os.close(number)

    def _answer(self) -> None:
        recorder = self._recorder()
        if recorder is None:
            say("SIGUSR1: backward has not been called yet")
            return
        say(f"SIGUSR1 in process {os.getpid()}; the Python stacks of its threads are above")
        before = recorder.path.stat().st_size if recorder.path.exists() else 0
        ring = recorder.store if isinstance(recorder.store, RingStore) else None
        fresh = 0 if ring is None else ring.write_down()
        recorder.dump(SIGNAL)
        if not recorder.flush():
            say(f"the recording has stopped ({before:,} bytes are in {shown(recorder.path)})")
            return
        report(recorder.path)
        if ring is not None:
            say(f"{fresh} more backward passes are in {shown(recorder.path)}")


_handlers: weakref.WeakSet[SignalHandler] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for handler in list(_handlers):
        handler._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
