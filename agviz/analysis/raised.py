"""Why a backward pass raised: the node, the hook or the callback, and the line in the program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agviz.analysis.place import described, place
from agviz.traces.rows import NodeStatus, visible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame, GraphTaskRow, NodeRow

_LONGEST: Final = 600
"""Characters of a message that are shown; ``as_json`` has all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """A backward pass that ended with an exception."""

    graph_task: int
    """The outermost call of backward or grad."""
    inner: int
    """The graph task in which it was raised: a reentrant one inside, or ``graph_task``."""
    node: NodeRow | None
    """The node that was running; None: none was, as in a final callback or a check before."""
    error: str
    """Type of the exception."""
    message: str
    call: Frame | None
    """The line that called ``graph_task``."""

    @property
    def frame(self) -> Frame | None:
        """The line to look at: where the node was made, else the call."""
        return self.call if self.node is None else self.node.frame or self.call

    @property
    def heading(self) -> str:
        """Which pass failed, where."""
        where = "" if self.node is None else f" in {place(self.node)}"
        return f"backward pass {self.graph_task} failed{where}: {self.error}"

    @property
    def paragraph(self) -> str:
        """What it said, and where the pass was."""
        return " ".join(self._sentences())

    def _sentences(self) -> Iterator[str]:
        said = " ".join(self.message.split())
        if said:
            shown = said[:_LONGEST] + "…" if len(said) > _LONGEST else said
            yield shown if shown.endswith((".", "!", "?", "…", ":")) else f"{shown}."
        inside = (
            "" if self.inner == self.graph_task else f" of reentrant backward pass {self.inner}"
        )
        if self.node is not None:
            yield f"It was raised in {described(self.node)}{inside}."
        if self.call is not None:
            yield f"Backward was called at {self.call}."

    def details(self) -> Iterator[str]:
        """What the answer rests on, line by line."""
        yield f"graph task {self.inner} failed with {self.error}: {self.message}"
        if self.node is not None:
            yield from (f"created at {frame}" for frame in self.node.stack if not frame.hidden)

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "kind": "raised",
            "graph_task": self.graph_task,
            "inner_graph_task": self.inner,
            "node": None if self.node is None else self.node.index,
            "name": None if self.node is None else self.node.short_name,
            "line": None if self.frame is None else str(self.frame),
            "error": self.error,
            "message": self.message,
            "called_at": None if self.call is None else str(self.call),
        }


def raised(trace: Trace, graph_task: int) -> Raised:
    """Why a graph task that failed did.

    Args:
        trace: the trace.
        graph_task: the outermost call of backward or grad.

    Raises:
        agviz.errors.TraceError: there is no such graph task, or the file is damaged.
    """
    task = trace.graph_task(graph_task)
    inner = innermost(trace, task)
    failed = (node for node in trace.nodes(inner.id) if node.status is NodeStatus.FAILED)
    return Raised(
        graph_task=graph_task,
        inner=inner.id,
        node=next(failed, None),
        error=task.error,
        message=task.message,
        call=visible(trace.call_site(graph_task)),
    )


def innermost(trace: Trace, task: GraphTaskRow) -> GraphTaskRow:
    """The reentrant graph task in which the exception was raised, or the task itself."""
    inside = [
        trace.graph_task(number)
        for number in trace.family(task.id)
        if trace.graph_task(number).message == task.message
    ]
    return max(inside, key=lambda task: task.reentrant_depth, default=task)
