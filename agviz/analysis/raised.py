"""Why a backward pass raised: the node, the hook or the callback, and the line in the program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agviz.analysis.place import described, place
from agviz.analysis.thread_status import HOOKS, inside_engine, named
from agviz.traces.rows import GraphTaskStatus, NodeStatus, visible
from agviz_engine.events import NodeFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.traces.reader import Trace
    from agviz.traces.rows import DumpedCall, Frame, GraphTaskRow, NodeRow

_OTHERWISE: Final = tuple(
    f"torch.utils.checkpoint: {what}"
    for what in (
        "A different number of tensors was saved",
        "Recomputed values for the following tensors have different metadata",
        "trying to save more tensors during recomputation",
    )
)
"""How torch begins where a recomputation saved other tensors than the forward did."""
_TWO_DTYPES: Final = "Found dtype "
_LONGEST: Final = 600
"""Characters of a message that are shown; ``as_json`` has all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RaisedException:
    """A backward pass that ended with an exception."""

    graph_task: int
    """The outermost call of backward or grad."""
    inner: int
    """The graph task in which it was raised: a reentrant one inside, or ``graph_task``."""
    node: NodeRow | None
    """The node that was running; None: none was, as in a final callback or a check before."""
    hook: DumpedCall | None
    """The hook or final callback that raised; None: none did, or it is not known."""
    error: str
    """Type of the exception."""
    message: str
    raised_at: Frame | None
    """The innermost line of the program from which it came; None: it came from torch's C++ code
    while no line of the program was running inside the engine, or that was not recorded."""
    stack: tuple[Frame, ...]
    """Where it was raised, outermost frame first; empty where that was not recorded."""
    call: Frame | None
    """The line that called ``graph_task``."""

    @property
    def frame(self) -> Frame | None:
        """The line to look at: where it was raised, else where the node was made, or the call."""
        made = None if self.node is None else self.node.frame
        return self.raised_at or made or self.call

    @property
    def heading(self) -> str:
        """Which pass failed, where."""
        where = "" if self.node is None else f" in {place(self.node)}"
        if self.hook is not None:
            where = f" in the {HOOKS[self.hook.kind]} {self.hook.name or 'of several'}"
            where += "" if self.node is None else f" of {place(self.node)}"
        return f"backward pass {self.graph_task} failed{where}: {self.error}"

    @property
    def paragraph(self) -> str:
        """What it said, and where the pass was."""
        return " ".join(self._sentences())

    def _sentences(self) -> Iterator[str]:
        said = " ".join(self.message.split())
        if said.startswith(_OTHERWISE):
            said = said.partition(" Tip: ")[0]
            yield (
                "The function of a checkpoint ran otherwise when it was computed anew. torch puts"
                " back autocast and, unless preserve_rng_state=False, its own random numbers, and"
                " no more: look for what else it decides by (Python's or NumPy's random numbers, a"
                " counter, a mode, a cache)."
            )
        if said and " " not in said:  # a bare value, as KeyError's
            said = f"{self.error}: {said}"
        if said:
            shown = said[:_LONGEST] + "…" if len(said) > _LONGEST else said
            yield shown if shown.endswith((".", "!", "?", "…", ":")) else f"{shown}."
        if said.startswith(_TWO_DTYPES):
            yield (
                "Its forward was given tensors of two dtypes, as a target in float64, which NumPy"
                " makes unless it is told otherwise, beside outputs in float32. Convert the data by"
                " .float() where they are made."
            )
        inside = f" of reentrant backward pass {self.inner}"
        where = "" if self.inner == self.graph_task else inside
        held = "" if self.hook is None else f"the {HOOKS[self.hook.kind]} {named(self.hook)}"
        if self.node is not None:
            on = f"{held} of " if held else ""
            yield f"It was raised in {on}{described(self.node)}{where}."
        elif held:
            yield f"It was raised in {held}{where}."
        if self.call is not None:
            yield f"Backward was called at {self.call}."

    def details(self) -> Iterator[str]:
        """What the answer rests on, line by line."""
        yield f"backward pass {self.inner} failed with {self.error}: {self.message}"
        yield from (f"raised at {frame}" for frame in self.stack if not frame.hidden)
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
            "hook": None if self.hook is None else self.hook.name,
            "hook_kind": None if self.hook is None else self.hook.kind,
            "line": None if self.frame is None else str(self.frame),
            "error": self.error,
            "message": self.message,
            "called_at": None if self.call is None else str(self.call),
            "stack": [str(frame) for frame in self.stack],
        }


def raised(trace: Trace, graph_task: int) -> RaisedException:
    """Why a graph task that failed did, or is about to: a node in it raised.

    Args:
        trace: the trace.
        graph_task: the outermost call of backward or grad.

    Raises:
        agviz.errors.TraceError: there is no such graph task, or the file is damaged.
    """
    task = trace.graph_task(graph_task)
    inner = innermost(trace, task)
    error, message = exception(trace, task)
    failed = (node for node in trace.nodes(inner.id) if node.status is NodeStatus.FAILED)
    dump = trace.raised(inner.id)
    thread = dump.threads[0] if dump is not None and dump.threads else None
    stack = () if thread is None else thread.stack
    calls = [] if thread is None else [c for c in thread.calls if c.graph_task == inner.id]
    return RaisedException(
        graph_task=graph_task,
        inner=inner.id,
        node=next(failed, None),
        hook=calls[-1] if calls and calls[-1].kind in HOOKS else None,
        error=error,
        message=message,
        raised_at=visible(inside_engine(stack)),
        stack=stack,
        call=visible(trace.call_site(graph_task)),
    )


def exception(trace: Trace, task: GraphTaskRow) -> tuple[str, str]:
    """Type and message of what a graph task ended with, or is about to: a node in it raised.

    Both are empty where nothing was raised.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    if task.status is not GraphTaskStatus.FAILED:
        seq = trace.first_failure(task.id)
        for event in () if seq is None else trace.events_of([seq]):
            if isinstance(event, NodeFailed):
                return event.error, event.message
    return task.error, task.message


def innermost(trace: Trace, task: GraphTaskRow) -> GraphTaskRow:
    """The reentrant graph task in which the exception was raised, or the task itself."""
    if task.status is not GraphTaskStatus.FAILED:
        return task
    inside = [
        trace.graph_task(number)
        for number in trace.family(task.id)
        if trace.graph_task(number).message == task.message
    ]
    return max(inside, key=lambda task: task.reentrant_depth, default=task)
