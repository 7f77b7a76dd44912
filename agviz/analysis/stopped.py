"""Where a debugger holds a program: a program that is held does not hang."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from agviz.analysis.place import place

if TYPE_CHECKING:
    from agviz.traces.reader import Trace
    from agviz.traces.rows import HeldRow, NodeRow


class StoppedAt(NamedTuple):
    """The place where a debugger has stopped a thread."""

    held: HeldRow
    node: NodeRow | None
    """None: it is at none, or at none that is known."""

    def __str__(self) -> str:
        """``MulBackward0 of encoder (node 12)``, else ``thread 3``."""
        if self.node is None:
            return f"thread {self.held.thread}"
        return f"{place(self.node)} (node {self.node.index})"

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "thread": self.held.thread,
            "graph_task": self.held.graph_task if self.held.graph_task >= 0 else None,
            "node": None if self.node is None else self.node.index,
            "reason": self.held.reason,
        }


def stopped_at(trace: Trace) -> StoppedAt | None:
    """Where a debugger holds the thread that it stopped last; None: it holds none.

    In a file that does not grow: where it held one when the recording ended.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    held = [row for row in trace.held() if row.end_ns is None]
    if not held:
        return None
    last = held[-1]
    nodes = trace.nodes(last.graph_task) if trace.graph_tasks.has(last.graph_task) else ()
    return StoppedAt(last, nodes[last.node] if 0 <= last.node < len(nodes) else None)
