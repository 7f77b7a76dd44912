"""What a rank was doing last, in a small file beside its trace, for the case that it is killed.

Rows reach the trace some times a second, so a process that is killed takes the last ones with it.
This file is a page of memory that the system writes back whatever becomes of the process. It is
gone once the recording was closed.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

LAYOUT: Final = struct.Struct("<8s5q")
"""The magic, graph task, node, time, the graph task that the checksum is of, checksum."""
MAGIC: Final = b"agvizlst"
NODE: Final = struct.Struct("<3q")
"""Graph task, node and time, at :data:`NODE_AT`."""
NODE_AT: Final = 8
GRAPH: Final = struct.Struct("<2q")
"""The graph task that the checksum is of, and the checksum, at :data:`GRAPH_AT`."""
GRAPH_AT: Final = NODE_AT + NODE.size


class LastMoment(NamedTuple):
    """The last thing that a process did in backward."""

    graph_task: int
    """That was under way last."""
    node: int
    """That started last; -1: the graph task had ended."""
    time_ns: int
    """``time.monotonic_ns()``."""
    known_graph_task: int
    """The last graph task whose graph was known."""
    fingerprint: int
    """Of that."""


def place(trace: Path) -> Path:
    """The file beside a trace."""
    return trace.with_name(f"{trace.name}.last")


def read(trace: Path) -> LastMoment | None:
    """What is known; None: nothing is, as where the recording was closed."""
    try:
        with place(trace).open("rb") as file:
            contents = file.read(LAYOUT.size)
        magic, *facts = LAYOUT.unpack(contents)
    except (OSError, struct.error):
        return None
    return LastMoment(*facts) if magic == MAGIC and facts[0] >= 0 else None
