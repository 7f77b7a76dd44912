"""Threads that a debugger holds while it records."""

from __future__ import annotations

import itertools
import time

from agviz.traces.held import Held, LetGo


class Holding:
    """The threads that a debugger holds now.

    Args:
        start_ns: ``time.monotonic_ns()`` at the start of the recording.
    """

    def __init__(self, start_ns: int) -> None:
        self._start_ns = start_ns
        self._next_number = itertools.count(1).__next__
        self._held: dict[int, int] = {}
        """Numbers of their stops, by thread."""
        self._until_ns = start_ns

    @property
    def holds(self) -> bool:
        """Whether it holds any."""
        return bool(self._held)

    @property
    def until_ns(self) -> int:
        """Up to when it held any (``time.monotonic_ns()``); the start, where it held none."""
        return time.monotonic_ns() if self._held else self._until_ns

    def hold(self, thread: int, graph_task: int, node: int, reason: str) -> Held:
        """It holds one from now on; fields as in :class:`Held`."""
        number = self._held[thread] = self._next_number()
        now = time.monotonic_ns() - self._start_ns
        return Held(number, now, thread, graph_task, node, reason)

    def let_go(self, thread: int) -> LetGo | None:
        """It holds it no longer; None: it did not."""
        number = self._held.pop(thread, None)
        if number is None:
            return None
        self._until_ns = time.monotonic_ns()
        return LetGo(number, self._until_ns - self._start_ns)
