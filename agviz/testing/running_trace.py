"""The trace of a test that is still running."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agviz.recorded import Recorded

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agviz.traces.reader import Trace


class RunningTrace(Recorded):
    """The trace of a test that may still be running.

    Args:
        path: the file.
        flush: has everything so far be in it.
    """

    def __init__(self, path: Path, flush: Callable[[], None]) -> None:
        super().__init__(path)
        self._flush = flush

    @property
    def trace(self) -> Trace:
        """Everything else that can be asked of a trace, as it is now."""
        self._flush()
        return super().trace
