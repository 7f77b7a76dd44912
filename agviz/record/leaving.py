"""What the program was doing when it called ``os._exit``, which runs no exit handler.

Launchers and rank failures end processes so, in the midst of a backward pass too. What waits for
the file would be lost with them, the pass itself among it.
"""

from __future__ import annotations

import contextlib
import functools
import os
from typing import TYPE_CHECKING, Final, NoReturn

from agviz.traces.dumps import EXIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.record.recorder import Recorder

_SECONDS: Final = 2.0
"""The program waits at most so long for its file."""


class Leaving:
    """Writes what is known before the process ends, from :meth:`start` on.

    Args:
        recorder: gives what is written by; None while no file is open.
    """

    def __init__(self, recorder: Callable[[], Recorder | None]) -> None:
        self._recorder = recorder
        self._native = self._ours = os._exit

    def start(self) -> None:
        """Take the place of ``os._exit``, which is called in any case."""
        native = self._native = os._exit

        @functools.wraps(native)
        def leave(status: int) -> NoReturn:
            try:
                with contextlib.suppress(Exception):
                    self._write()
            finally:
                native(status)

        self._ours = leave
        os._exit = leave

    def stop(self) -> None:
        """Put back what was there, unless somebody has replaced it since."""
        if os._exit is self._ours:
            os._exit = self._native

    def _write(self) -> None:
        recorder = self._recorder()
        if recorder is not None and recorder.is_recording:
            recorder.dump(EXIT)
            recorder.flush(_SECONDS)
