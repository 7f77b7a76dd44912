"""BlackBox: what this process does, in a page of memory that outlives it."""

from __future__ import annotations

import contextlib
import mmap
import os
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

from agviz.traces import last_moment
from agviz.traces.codec import GRAPH_TASK_COLUMN, KIND_COLUMN
from agviz_engine.emissions import TOOK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_TIME_COLUMN, _NODE_COLUMN = 1, 5


class BlackBox:
    """Keeps the last node that started, beside the trace, until :meth:`close`.

    Args:
        trace: the trace.

    Raises:
        OSError: the file can't be made.
    """

    def __init__(self, trace: Path) -> None:
        self._path = last_moment.place(trace)
        self._process = os.getpid()
        self._calls: Counter[str] = Counter()
        with self._path.open("w+b") as file:
            file.write(last_moment.LAYOUT.pack(last_moment.MAGIC, -1, -1, 0, -1, 0, -1, 0, b""))
            file.flush()
            self._memory = mmap.mmap(file.fileno(), last_moment.LAYOUT.size)

    def journal(self, keep: Callable[[Sequence[Any]], None]) -> Callable[[Sequence[Any]], None]:
        """A function that takes rows, keeps the last node that started, and hands them on."""
        memory, pack, at = self._memory, last_moment.NODE.pack_into, last_moment.NODE_AT

        def note(rows: Sequence[Any]) -> None:
            keep(rows)
            if rows[KIND_COLUMN] == TOOK:
                pack(memory, at, rows[GRAPH_TASK_COLUMN], rows[_NODE_COLUMN], rows[_TIME_COLUMN])

        return note

    def graph(self, graph_task: int, fingerprint: int) -> None:
        """The graph of a pass is known."""
        last_moment.GRAPH.pack_into(self._memory, last_moment.GRAPH_AT, graph_task, fingerprint)

    def ended(self, graph_task: int, time_ns: int) -> None:
        """A pass has ended."""
        last_moment.NODE.pack_into(self._memory, last_moment.NODE_AT, graph_task, -1, time_ns)

    def called(self, graph_task: int, what: tuple[str, str, str], line: str, group: str) -> None:
        """The program calls a collective, after or in the outermost graph task that began last.

        Args:
            graph_task: that.
            what: operation, shapes and dtypes.
            line: where.
            group: name of the process group.
        """
        self._calls[group] += 1
        number = f"{self._calls[group]} of process group {group}"
        text = "|".join((number, *what, line)).replace("\0", "").encode()
        now_ns = time.monotonic_ns()
        last_moment.CALL.pack_into(self._memory, last_moment.CALL_AT, graph_task, now_ns, text)

    def close(self) -> None:
        """Remove it: the trace has everything."""
        if self._process == os.getpid():
            with contextlib.suppress(OSError):
                self._path.unlink()
