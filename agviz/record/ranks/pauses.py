"""Where the program is while nothing happens: what a rank is slow at between backward passes.

A thread looks twenty times a second whether anything was recorded since. Where nothing was, it
takes the stack of the thread that calls backward, again after twice the time, and so on.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final

from agviz.record.files import stack_of
from agviz.record.frame_locals import frames_of_threads
from agviz.traces.distributed import Pause
from agviz_engine.finalizers import Bell, held_off

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.record.files import Files

_SECONDS: Final = 0.05
_MOST_NS: Final = 2_000_000_000


class Pauses:
    """Looks between :meth:`start` and :meth:`stop`.

    Args:
        progress: anything that differs once something has happened.
        place: the last outermost graph task that had begun, and whether it has not ended.
        files: gives files the names that a reader knows them by.
        keep: takes what is found.
    """

    def __init__(
        self,
        progress: Callable[[], object],
        place: Callable[[], tuple[int, bool]],
        files: Files,
        keep: Callable[[Pause], None],
    ) -> None:
        self._progress, self._place, self._files, self._keep = progress, place, files, keep
        self.caller = threading.main_thread().ident or 0
        """Identity of the thread that called backward last."""
        self._is_over = Bell()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Look from now on."""
        self._thread = threading.Thread(target=self._run, name="agviz-pauses", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Look no longer."""
        self._is_over.set()

    def _run(self) -> None:
        with held_off():
            self._watch()

    def _watch(self) -> None:
        seen, since_ns, wait_ns = self._progress(), time.monotonic_ns(), 0
        while not self._is_over.wait(_SECONDS):
            now_ns, found = time.monotonic_ns(), self._progress()
            if found != seen:
                seen, since_ns, wait_ns = found, now_ns, 0
            elif now_ns - since_ns >= wait_ns:
                wait_ns = max(2 * (now_ns - since_ns), int(_SECONDS * 1e9))
                if wait_ns <= _MOST_NS:
                    self._look(now_ns)

    def _look(self, now_ns: int) -> None:
        frame = frames_of_threads().get(self.caller)
        if frame is None:
            return
        thread = next((t for t in threading.enumerate() if t.ident == self.caller), None)
        native_id = 0 if thread is None else thread.native_id or 0
        self._keep(Pause(now_ns, *self._place(), native_id, stack_of(frame, self._files)))
