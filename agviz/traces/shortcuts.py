"""What a closed recording holds beside the facts, so that readers find any event quickly.

All of it can be worked out from the other tables, and readers do where it is missing: in a file
that still grows, or whose recording was cut off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.traces.contents import Contents
from agviz.traces.database import Database
from agviz.traces.graph_shape import is_stored
from agviz.traces.journal import Journal
from agviz.traces.pages import Pages
from agviz.traces.replay import Replay
from agviz.traces.schema import KEYFRAME_LIMIT
from agviz.traces.writer import Introduction

if TYPE_CHECKING:
    from pathlib import Path

    from agviz.traces.writer import Writer

_KEYFRAMES_PER_TRANSACTION: Final = 50


def store(path: Path, writer: Writer) -> None:
    """Read the recording that ``writer`` has completed at ``path``, and store its shortcuts.

    Whatever is raised, the file stays good to read.

    Raises:
        agviz.errors.TraceError: the recording does not make sense.
        sqlite3.Error: the file can't be written to.
        ValueError, OverflowError: a number is none that the engine can have told.
    """
    database = Database(path)
    try:
        contents = Contents(database)
        pages = Pages(database, contents)
        unknown = [
            Introduction(thread.id, thread.name, thread.queue, thread.native_id)
            for thread in contents.threads
            if thread.id in contents.unknown_threads()
        ]
        writer.write(Journal(), unknown)
        writer.store("anchor", list(pages.to_store()))
        for number, task in contents.graph_tasks.items():
            if is_stored(task.nodes):
                writer.store("shape", _shape(contents, number))
        waiting = []
        for keyframe in Replay.of(contents, pages).keyframes():
            if len(keyframe.state) <= KEYFRAME_LIMIT:
                waiting.append(keyframe)
            if len(waiting) >= _KEYFRAMES_PER_TRANSACTION:
                writer.store("keyframe", waiting)
                waiting = []
        writer.store("keyframe", waiting)
    finally:
        database.close()


def _shape(contents: Contents, graph_task: int) -> list[tuple[int, int, bytes]]:
    """Rows of a graph task, none where they are too long or can't be packed."""
    try:
        parts = contents.shape(graph_task).pack()
    except OverflowError:
        return []
    if max(map(len, parts)) > KEYFRAME_LIMIT:
        return []
    return [(graph_task, number, part) for number, part in enumerate(parts)]
