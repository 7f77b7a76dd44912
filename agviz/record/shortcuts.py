"""What a closed recording holds beside the facts, so that readers find any event quickly.

All of it can be worked out from the other tables, and readers do where it is missing: in a file
that still grows, or whose recording was cut off.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from agviz.record.journal import Journal
from agviz.record.writer import Introduction
from agviz.traces.contents import Contents
from agviz.traces.database import Database
from agviz.traces.events import EventReader
from agviz.traces.reader import Trace
from agviz.traces.run_norms import RunNorms
from agviz.traces.timeline import Timeline

if TYPE_CHECKING:
    from pathlib import Path

    from agviz.record.writer import Writer


_BYTES_AT_ONCE: Final = 2**20
"""Bytes that are kept in memory before they are written."""


def store(path: Path, writer: Writer) -> None:
    """Read the recording that ``writer`` has completed at ``path``, and store its shortcuts.

    Whatever is raised, the file stays good to read.

    Raises:
        agviz.errors.TraceError: the recording does not make sense.
        sqlite3.Error: the file can't be written to.
        ValueError, OverflowError: a number is none that the engine can have emitted.
    """
    database = Database(path)
    try:
        contents = Contents(database)
        events = EventReader(database, contents.events, lambda: False, lambda _: None)
        unknown = [
            Introduction(thread.id, thread.name, thread.queue, thread.native_id)
            for thread in contents.threads
            if thread.id in contents.unknown_threads
        ]
        writer.write(Journal(), unknown)
        writer.store("anchor", list(events.to_store()))
        rows: list[tuple[int, bytes]] = []
        nbytes = 0
        timeline = Timeline(database, lambda: contents.graph_tasks, is_closed=True)
        for row in timeline.to_store(events.lasts(), writer.moments):
            rows.append(row)
            nbytes += len(row[1])
            if nbytes > _BYTES_AT_ONCE:
                writer.store("timeline", rows)
                rows, nbytes = [], 0
        writer.store("timeline", rows)
        trace = Trace(database)
        norms = RunNorms(trace)
        norms.read_on(math.inf)
        for row in trace.task_facts.to_store(norms.known):
            writer.store("run", [row])
    finally:
        database.close()
