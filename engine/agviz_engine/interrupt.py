"""Signals during a backward pass.

Note [Interrupts]
~~~~~~~~~~~~~~~~~
Python handles a signal between any two bytecodes of the main thread. Torch's engine has none, so
KeyboardInterrupt strikes in a hook or a custom Function, or when backward returns. In an engine
made of bytecodes it would strike everywhere: between the taking of a thread-local and the ``try``
that gives it back, for example. So a signal is held back while its handler would strike the engine,
until the next node that this thread runs, or else until the pass is over. Where other code runs,
which may wait for long, it strikes at once: :func:`_strikes_engine` looks whose frame it is.

That holds for all signals in :data:`_NUMBERS` with a handler in Python: one for SIGALRM may raise
as well, and so does the one that torch's DataLoader has for SIGCHLD.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

from agviz_engine.instruments import own_packages
from agviz_engine.thread_state import NO_DEVICE, EngineThread, current

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from agviz_engine.thread_state import Handler

_signal: Any = importlib.import_module("_signal")
"""What ``signal`` wraps, without enums: its calls of a pass take 0.7 us in place of 10."""
_NAMES: Final = (
    *("SIGALRM", "SIGBREAK", "SIGCHLD", "SIGHUP", "SIGINT", "SIGPROF", "SIGQUIT", "SIGTERM"),
    *("SIGVTALRM", "SIGXCPU"),
)
_NUMBERS: Final = tuple(sorted(int(each) for each in signal.Signals if each.name in _NAMES))
"""Those for which programs have handlers. To set one in Python, and be it the one that is there,
takes a signal from ``faulthandler`` (``register(SIGUSR1, chain=True)``): SIGUSR1 and SIGUSR2, which
that is used with, are let be."""
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
    """Hold signals back for the length of a backward pass, see Note [Interrupts].

    Does nothing inside another pass, where they are held back already, on other threads than the
    main one, and where no signal has a handler in Python.

    Raises:
        KeyboardInterrupt: SIGINT came and no node was left to raise it; or whatever else the
            program's own handlers raise.
    """
    thread = current()
    outermost = thread.worker_device == NO_DEVICE and not thread.holds_back
    if not outermost or threading.current_thread() is not threading.main_thread():
        yield
        return
    found = zip(_NUMBERS, map(_signal.getsignal, _NUMBERS), strict=True)
    handlers: dict[int, Handler] = {number: each for number, each in found if callable(each)}

    def handle(number: int, frame: FrameType | None) -> None:
        if _strikes_engine(frame):
            thread.interrupts.append((number, handlers[number]))
        else:
            handlers[number](number, frame)

    try:
        thread.holds_back = True
        for number in handlers:
            _signal.signal(number, handle)
        yield
    finally:
        thread.holds_back = False
        raised = _give_back(handlers, handle)
        try:
            if thread.interrupts:
                strike(thread)
        finally:
            if raised is not None:
                raise raised


def _give_back(handlers: dict[int, Handler], handle: Handler) -> BaseException | None:
    """Put the program's handlers in the place of ours; what one of them raises meanwhile."""
    raised = None
    waiting = list(handlers)
    while waiting:
        try:
            number = waiting[-1]
            now = _signal.signal(number, handlers[number])
            if now is not handle:  # the program set another one meanwhile
                _signal.signal(number, now)
            waiting.pop()
        except BaseException as error:  # noqa: BLE001 - it is raised once all are back
            raised = error
    return raised


def strike(thread: EngineThread) -> None:
    """Call the program's handlers of what was held back on ``thread``, the current one.

    Raises:
        KeyboardInterrupt: this is what Python's own handler of SIGINT does.
    """
    try:
        number, handler = thread.interrupts.pop(0)
    except IndexError:  # a handler that struck since the caller looked has trained, and called it
        return
    try:
        handler(number, inspect.currentframe())
    finally:
        if thread.interrupts:
            strike(thread)
