"""Ctrl-C during a backward pass.

Note [Interrupts]
~~~~~~~~~~~~~~~~~
Python handles a signal between any two bytecodes of the main thread. Torch's engine has none, so
KeyboardInterrupt strikes in a hook or a custom Function, or when backward returns. In an engine
made of bytecodes it would strike everywhere: between the taking of a thread-local and the ``try``
that gives it back, for example. So SIGINT is held back while it would strike the engine, until the
next node that this thread runs, or else until the pass is over. Where other code runs, which may
wait for long, it strikes at once: :func:`_strikes_engine` looks whose frame it is.

Other signals are left alone: a handler that raises for one of them can break a running pass.
"""

from __future__ import annotations

import contextlib
import inspect
import signal
import sys
import threading
from typing import TYPE_CHECKING

from agviz_engine.instruments import own_packages
from agviz_engine.thread_state import NO_DEVICE, EngineThread, current

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_HELPERS = sys.stdlib_module_names | {"torch"}


def _strikes_engine(frame: FrameType | None) -> bool:
    """Whether a frame is the engine's; one of Python's or torch's own belongs to its caller."""
    while frame is not None:
        if frame.f_globals.get("__package__") in own_packages:
            return True
        module = str(frame.f_globals.get("__name__"))
        if module.partition(".")[0] not in _HELPERS and not module.startswith("namedtuple_"):
            return False
        frame = frame.f_back
    return False


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Hold SIGINT back for the length of a backward pass, see Note [Interrupts].

    Does nothing inside another pass, on other threads than the main one, and where SIGINT has no
    handler in Python.

    Raises:
        KeyboardInterrupt: SIGINT came and no node was left to raise it; or whatever else the
            program's own handler raises.
    """
    thread = current()
    outermost = thread.worker_device == NO_DEVICE
    if not outermost or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    if not callable(before):
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if _strikes_engine(frame):
            thread.interrupt = before
        else:
            before(number, frame)

    signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        now = signal.signal(signal.SIGINT, before)
        if now is not handle:  # the program set another one meanwhile
            signal.signal(signal.SIGINT, now)
        if thread.interrupt is not None:
            strike(thread)


def strike(thread: EngineThread) -> None:
    """Call the program's handler of the SIGINT that was held back on ``thread``, the current one.

    Raises:
        KeyboardInterrupt: this is what Python's own handler does.
    """
    before, thread.interrupt = thread.interrupt, None
    if before is not None:
        before(signal.SIGINT, inspect.currentframe())
