"""Calls of backward and grad that torch's own engine took over, written and read.

It refuses those with nothing to differentiate. Such a call has no graph task; what is known of it
is why torch refused, where it was called and where gradients had been turned off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from agviz.traces import dumps
from agviz.traces.rows import NativeCallRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agviz.traces.contents import Contents
    from agviz.traces.database import Database
    from agviz.traces.rows import Frame
    from agviz_engine.events import Delegated, DelegatedFailed


class NativeCall(NamedTuple):
    """Such a call, on its way to the file."""

    began: Delegated
    failed: DelegatedFailed | None
    graph_task: int
    """The last that had begun before; -1: none."""
    start_ns: int
    """Start of the recording."""
    grad_enabled: bool
    stack: tuple[Frame, ...]
    """Stack of the call, outermost frame first; empty where it did not fail."""
    disabled: tuple[Frame, ...]
    """Where gradients had been turned off; empty where they were not, or it is not known."""

    def rows(
        self, text: Callable[[str], int], stack: Callable[[tuple[Frame, ...]], int]
    ) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Tables and the rows for them."""
        error, message = ("", "") if self.failed is None else self.failed[-2:]
        yield (
            "native_call",
            (
                self.began.seq,
                self.began.time_ns - self.start_ns,
                self.graph_task,
                text(self.began.reason),
                text(error),
                text(message),
                int(self.grad_enabled),
                stack(self.stack),
                stack(self.disabled),
            ),
        )


def read(database: Database, contents: Contents) -> list[NativeCallRow]:
    """In order of time.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    text = contents.name
    return [
        NativeCallRow(
            seq=seq,
            time_ns=t + contents.meta.start_ns,
            graph_task=after,
            reason=text(reason),
            error=text(error),
            message=text(message),
            grad_enabled=bool(enabled),
            stack=dumps.stack(database, contents, stack),
            disabled=dumps.stack(database, contents, disabled),
        )
        for seq, t, after, reason, error, message, enabled, stack, disabled in database.integers(
            "SELECT seq, t, graph_task, reason, error, message, grad_enabled, stack, disabled"
            " FROM native_call ORDER BY seq"
        )
    ]
