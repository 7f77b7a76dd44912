"""Children that multiprocessing spawns are recorded as their parent is.

``spawn`` and ``forkserver``, which ``torch.multiprocessing.spawn`` uses, begin a new interpreter.
It unpickles what its parent prepared for it, and among that a thing that begins to record. A child
that can't do so, as one of another Python that has no agviz, goes on without.
"""

from __future__ import annotations

import pickle
import sys
from typing import TYPE_CHECKING, Any, Final

from agviz import startup
from agviz.after_import import after_import
from agviz.recording import Recording, beside

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agviz.record.options import Options

_IN_CHILD: Final = """
try:
    from agviz.spawning import begin
except ImportError:
    pass
else:
    begin(given)
"""
_KEY: Final = "agviz"
"""Of what is prepared; multiprocessing ignores keys that it does not know."""


class _ToRecord:
    """Its copy in the child is nothing; making it begins to record."""

    def __init__(self, given: bytes) -> None:
        self._given = given

    def __reduce__(self) -> tuple[Callable[..., None], tuple[object, ...]]:
        return exec, (_IN_CHILD, {"given": self._given})


def record_children(recording: Recording, **about: object) -> None:
    """Have the children that this process spawns recorded from now on.

    Args:
        recording: of this process.
        about: ``script`` and ``argv``, as for the recording.
    """

    def instead() -> None:
        spawn: Any = sys.modules["multiprocessing.spawn"]
        own = spawn.get_preparation_data

        def get_preparation_data(name: str) -> dict[str, object]:
            prepared: dict[str, object] = own(name)
            given = pickle.dumps((recording.path.absolute(), recording.options, about))
            return {**prepared, _KEY: _ToRecord(given)}

        spawn.get_preparation_data = get_preparation_data

    after_import("multiprocessing.spawn", instead)


def begin(given: bytes) -> None:
    """Record this process, a child, from the import of torch on; unless AGVIZ=1 does."""
    if startup.is_asked_for():
        return
    path: Path
    options: Options
    path, options, about = pickle.loads(given)  # noqa: S301 - its parent made it
    recording = Recording(beside(path), options, replace=False, **about)
    recording.is_child = True

    def start() -> None:
        if recording.start_if_possible():
            recording.until_exit()

    after_import("torch", start)
    record_children(recording, **about)
