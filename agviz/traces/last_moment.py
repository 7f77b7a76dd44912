"""What a rank was doing last, in a small file beside its trace, for the case that it is killed.

Rows reach the trace some times a second, so a process that is killed takes the last ones with it.
This file is a page of memory that the system writes back whatever becomes of the process. It is
gone once the recording was closed.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.words.safe import clean

if TYPE_CHECKING:
    from pathlib import Path

LAYOUT: Final = struct.Struct("<8s7q400s")
"""The magic; graph task, node, time; the graph task that the checksum is of, checksum; the last
graph task that had begun when a collective was called last, when that was, and its text."""
MAGIC: Final = b"agvizlst"
NODE: Final = struct.Struct("<3q")
"""Graph task, node and time, at :data:`NODE_AT`."""
NODE_AT: Final = 8
GRAPH: Final = struct.Struct("<2q")
"""The graph task that the checksum is of, and the checksum, at :data:`GRAPH_AT`."""
GRAPH_AT: Final = NODE_AT + NODE.size

CALL: Final = struct.Struct("<2q400s")
"""The last graph task that had begun when the program called a collective last, when that was, and
its text, at :data:`CALL_AT`."""
_CALL_TEXTS: Final = 5
"""In the text: number, operation, shapes, dtypes, line."""
CALL_AT: Final = GRAPH_AT + GRAPH.size


class LastMoment(NamedTuple):
    """The last thing that a process did in backward."""

    graph_task: int
    """That was under way last; -1: none was."""
    node: int
    """That started last; -1: the graph task had ended."""
    time_ns: int
    """``time.monotonic_ns()``."""
    known_graph_task: int
    """The last graph task whose graph was known."""
    fingerprint: int
    """Of that."""
    call_after: int
    """The last outermost graph task that had begun when the program called a collective last; -1:
    none."""
    call_ns: int
    """When the program called a collective last; 0: it did not."""
    number: str
    """Of that among those that the program called: ``3 of process group 0``; empty: not known."""
    operation: str
    """Of that, like ``all_reduce``."""
    shapes: str
    """Of its first tensors: ``[2, 3];[4]``."""
    dtypes: str
    """Of those: ``float32;float64``."""
    line: str
    """Where it was called: ``train.py:42 in main``."""

    @property
    def last_ns(self) -> int:
        """When the last of it was."""
        return max(self.time_ns, self.call_ns)

    @property
    def call_place(self) -> tuple[str, int]:
        """Process group of the last call, and its number there; empty and 0: not known."""
        number, _, group = self.number.partition(" of process group ")
        return (group, int(number)) if number.isdecimal() else ("", 0)


def place(trace: Path) -> Path:
    """The file beside a trace."""
    return trace.with_name(f"{trace.name}.last")


def read(trace: Path) -> LastMoment | None:
    """What is known; None: nothing is, as where the recording was closed."""
    try:
        with place(trace).open("rb") as file:
            contents = file.read(LAYOUT.size)
        magic, *facts, text = LAYOUT.unpack(contents)
    except (OSError, struct.error):
        return None
    if magic != MAGIC:
        return None
    said = clean(text.rstrip(b"\0").decode(errors="replace")).split("|")
    call = said if len(said) == _CALL_TEXTS else [""] * _CALL_TEXTS
    return LastMoment._make([*facts, *call])
