"""How long a thread ran, and how long it was ready to run but had no CPU."""

from __future__ import annotations

import contextlib
import os
import threading


class Scheduling(threading.local):
    """Asks the system (Linux) about the thread that asks."""

    _file: int | None = None
    """Which says it, -1: there is none; None: it was not looked for."""

    def __del__(self) -> None:
        if self._file is not None and self._file >= 0:
            os.close(self._file)

    def so_far(self) -> tuple[int, int] | None:
        """Time on a CPU and time ready without one, in ns since the thread began; None: unknown."""
        if self._file is None:
            self._file = -1
            with contextlib.suppress(OSError):
                self._file = os.open("/proc/thread-self/schedstat", os.O_RDONLY | os.O_CLOEXEC)
        if self._file < 0:
            return None
        try:
            ran, delayed, _ = os.pread(self._file, 100, 0).split()
            return int(ran), int(delayed)
        except (OSError, ValueError):
            return None
