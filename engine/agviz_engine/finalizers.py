"""The program's finalizers run on the program's own threads.

Note [Who collects]
~~~~~~~~~~~~~~~~~~~
Python collects garbage on whichever thread makes an object when enough has come together, and calls
finalizers and the callbacks of weak references there. On a thread of agviz's, which makes many
objects, those of a program with one thread would run beside the program: two that use one model end
the process, since torch's ``.grad`` may not be read while it is written.

So nothing is collected while such a thread executes Python: the thresholds of the collector, which
unlike ``gc.isenabled`` programs hardly look at, are out of reach. Where the thread waits they are
what they were, and the next of the program's threads that makes an object collects. It waits in
functions of C, whose arguments are made before: a tuple more would have it collect itself. What is
left: in Python 3.12 a thread may take over a collection that another one has just begun.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_OUT_OF_REACH: Final = 2**24
"""Objects; a program may multiply what it finds, and 2**31 are more than Python takes."""
_A_MOMENT: Final = 0.0005
"""Seconds: long enough for another thread to take the GIL."""
_A_WHILE: Final = 0.05
"""Seconds between moments given to threads that did not collect, since they wait for agviz."""


class _Collector:
    """Python's garbage collector, as the threads of agviz use it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._holders = 0
        self._found = self._ours = 0, 0, 0
        """The thresholds of the program, and those in their place."""
        self._next_moment = 0.0

    def hold_off(self) -> None:
        """Have nothing collected until :meth:`let_go`; threads may do so beside each other.

        Where the thresholds are those of the last time, nothing is made before they are replaced.
        """
        self._lock.acquire()
        try:
            self._holders += 1
            now = gc.get_threshold()
            if self._holders > 1 or now[0] == 0 or now[0] == _OUT_OF_REACH:
                return
            if now != self._found:
                self._found, self._ours = now, (_OUT_OF_REACH, *now[1:])
            gc.set_threshold(*self._ours)
        finally:
            self._lock.release()

    def let_go(self) -> None:
        """Have the program's threads collect again; nothing is made after that."""
        self._lock.acquire()
        try:
            self._holders = max(0, self._holders - 1)  # a handler may have forked meanwhile
            if not self._holders and gc.get_threshold() == self._ours:  # else the program set it
                gc.set_threshold(*self._found)
        finally:
            self._lock.release()

    def is_due(self) -> bool:
        """Whether the program would collect if it were not held off."""
        return self._holders > 0 and gc.get_count()[0] > self._found[0]

    def give_way(self) -> None:
        """Wait a moment where a collection is due, if those threads took the last one."""
        if self.is_due() and time.monotonic() >= self._next_moment:
            while_waiting(time.sleep, _A_MOMENT)
            if self.is_due():
                self._next_moment = time.monotonic() + _A_WHILE

    def forked(self) -> None:
        """Be in a child what the collector is to a program: its parent's threads are not there."""
        if self._holders and gc.get_threshold() == self._ours:
            gc.set_threshold(*self._found)
        self.__init__()  # type: ignore[misc]


_collector = _Collector()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_collector.forked)


@contextlib.contextmanager
def held_off() -> Iterator[None]:
    """Have no finalizer run on a thread of agviz's, or where autograd is out of force.

    See Note [Who collects].
    """
    _collector.hold_off()
    try:
        yield
    finally:
        _collector.let_go()


def while_waiting(wait: Callable[..., object], *arguments: object) -> None:
    """Call a function, of C, that waits; the program's threads may collect meanwhile."""
    spare = gc.get_threshold()
    _collector.let_go()
    try:
        wait(*arguments)
    finally:
        del spare  # the next tuple of three takes its memory, so that nothing is made yet
        _collector.hold_off()


def give_way() -> None:
    """Let the program's threads collect where that is due, in the midst of long work."""
    _collector.give_way()


class Bell:
    """An event as ``threading.Event``, for which one thread of agviz's waits in C."""

    def __init__(self) -> None:
        self._has_rung = False
        self._silence = threading.Lock()
        self._silence.acquire()

    def is_set(self) -> bool:
        """Whether it has rung since :meth:`clear`."""
        return self._has_rung

    def set(self) -> None:
        """Wake the thread that waits, or the next that does; from a signal's handler, too."""
        self._has_rung = True
        with contextlib.suppress(RuntimeError):  # it rings already
            self._silence.release()

    def wait(self, seconds: float) -> bool:
        """Wait until it has rung, or for some seconds; whether it has."""
        if not self._has_rung:
            while_waiting(self._silence.acquire, True, seconds)
        return self._has_rung

    def clear(self) -> None:
        """Be as before it rang."""
        self._has_rung = False
        self._silence.acquire(blocking=False)
