"""``--agviz-compare``: gradients beside those of an earlier run, and new ones in their place."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
from typing import TYPE_CHECKING

from agviz.analysis.comparing import Tolerance
from agviz.errors import AgvizError
from agviz.testing.attempt import TRACE
from agviz.testing.paths import shown
from agviz.testing.slug import slug

if TYPE_CHECKING:
    from pathlib import Path

    from agviz.testing.attempt import Attempt
    from agviz.testing.settings import PluginSettings
    from agviz.traces.reader import Trace


class Baselines:
    """The traces of an earlier run, if this one is compared with one.

    Args:
        settings: what holds for the run.
    """

    def __init__(self, settings: PluginSettings) -> None:
        self._folder = settings.baseline
        self._tolerance = Tolerance(rtol=settings.rtol)
        self.are_wanted = settings.baseline is not None
        self.are_updated = settings.update

    def of(self, node_id: str) -> Path | None:
        """The trace that a test is compared with; None: there is none."""
        path = self._place(node_id)
        return path if path is not None and path.is_file() else None

    def difference(self, trace: Trace, attempt: Attempt) -> str:
        """What differs from the baseline, in words; empty: nothing, or there is no baseline.

        Raises:
            agviz.errors.AgvizError: one of both can't be read.
        """
        path = self.of(attempt.run.test)
        if path is None:
            return ""
        from agviz.analysis.diff import diff
        from agviz.traces.reader import Trace

        with Trace.open(path) as before:
            found = diff(before, trace, tolerance=self._tolerance.checked())
        if found.same:
            return ""
        files = shlex.join(map(shown, (path, attempt.folder / TRACE)))
        return f"gradients are not those of {shown(path)}. {found} More: agviz diff {files}"

    def update(self, attempt: Attempt) -> str:
        """Make the recording of a test that passed its baseline, unless that says the same.

        Returns:
            What was done: ``updated``, ``added`` or ``removed``; empty: nothing.

        Raises:
            agviz.errors.AgvizError: a file can't be read or written.
        """
        before, path = self.of(attempt.run.test), self._place(attempt.run.test)
        if path is None:
            return ""
        if not attempt.has_recorded:
            if before is None or attempt.problem:
                return ""
            _remove(before)
            return "removed"
        if before is not None and not self._differs(before, attempt):
            return ""
        attempt.keep()
        if attempt.problem:
            raise AgvizError(attempt.problem)
        _copy(attempt.folder / TRACE, path)
        return "added" if before is None else "updated"

    def _differs(self, before: Path, attempt: Attempt) -> bool:
        """Whether they do; also where the baseline can't be read any more."""
        with attempt.open() as trace:
            try:
                return bool(self.difference(trace, attempt))
            except AgvizError:
                return before.is_file()

    def _place(self, node_id: str) -> Path | None:
        return None if self._folder is None else self._folder / slug(node_id) / TRACE


def _copy(source: Path, path: Path) -> None:
    """Put a complete file in place of another, whatever ends the process meanwhile."""
    half = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, half)
        half.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            half.unlink(missing_ok=True)
        raise AgvizError(f"the baseline {shown(path)} can't be written: {error}") from error


def _remove(path: Path) -> None:
    try:
        path.unlink()
    except OSError as error:
        raise AgvizError(f"the baseline {shown(path)} can't be removed: {error}") from error
    with contextlib.suppress(OSError):  # somebody else's files are in it
        path.parent.rmdir()
