"""A moment of a recording, and the stack of each of the engine's threads then."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.traces.rows import NodeStatus, QueuedTask
from agviz.words.labels import numbered, of_owner, queue_label
from agviz_engine import events as e

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.traces.engine_state import EngineState
    from agviz.traces.events import Place
    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame, GraphTaskRow, NodeRow
    from agviz_engine.events import Event

MOST_OUTPUTS: Final = 200
"""Of a node, whose shapes are read."""
_OVER: Final = {NodeStatus.DONE, NodeStatus.SKIPPED, NodeStatus.FAILED}


class StackFrame(NamedTuple):
    """One line of a stack as an editor shows it."""

    title: str
    graph_task: int
    node: int | None = None
    """The node that it belongs to; None: to the call of backward."""
    frame: Frame | None = None
    """The line of the program; None: of none."""
    module: str = ""
    """Path of the module that is this line; empty: it is none."""


class Instant:
    """Just after an event.

    Args:
        trace: the recording.
        place: the event.
    """

    def __init__(self, trace: Trace, place: Place) -> None:
        self.trace = trace
        self.place = place
        self.task: GraphTaskRow = trace.graph_task(place.graph_task)

    @property
    def seq(self) -> int:
        """``seq`` of the event."""
        return self.place.seq

    @cached_property
    def event(self) -> Event:
        """The event."""
        (event,) = self.trace.events_of([self.seq])
        return event

    @cached_property
    def state(self) -> EngineState:
        """What the engine knew."""
        number = self.place.graph_task
        return self.trace.state_at(number, self.trace.position(self.seq, number) + 1)

    @property
    def thread(self) -> int:
        """The thread that did what the event says."""
        return self.event.thread

    def has_ended(self, graph_task: int) -> bool:
        """Whether a graph task has come to its end by now."""
        end = self.trace.graph_task(graph_task).end_seq
        return end is not None and end <= self.seq

    def label(self, graph_task: int, node: int) -> str:
        """``#12 AccumulateGrad of 0.weight``."""
        row = self.trace.node(graph_task, node, most_outputs=0)
        order = row.order if self.has_started(row) else None
        return of_owner(numbered(order, row.short_name), row.parameter)

    def status(self, row: NodeRow) -> NodeStatus:
        """How far a node has come by now."""
        try:
            return self.state.status(row.graph_task, row.index)
        except (KeyError, IndexError):  # its graph task has not begun, or is long over
            return row.status if self.has_ended(row.graph_task) else NodeStatus.WAITING

    def has_started(self, row: NodeRow) -> bool:
        """Whether a node has been taken up by now."""
        return self.status(row) is NodeStatus.RUNNING or self.is_over(row)

    def is_over(self, row: NodeRow) -> bool:
        """Whether a node has run, failed or been skipped by now."""
        return self.status(row) in _OVER

    def nodes(self, thread: int) -> list[QueuedTask]:
        """The nodes that a thread is in, innermost first; else the one that the event is about."""
        inside = self.state.running().get(thread, ())
        if inside:
            return list(reversed(inside))
        node = _subject(self.event) if thread == self.thread else None
        return [] if node is None else [QueuedTask(self.place.graph_task, node)]

    def stack(self, thread: int) -> list[StackFrame]:
        """Node, module and lines of the forward, then the call of backward; innermost first."""
        found: list[StackFrame] = []
        inside = self.nodes(thread)
        for place, (graph_task, node) in enumerate(inside):
            found += self._of_node(graph_task, node)
            around = inside[place + 1].graph_task if place + 1 < len(inside) else None
            if around != graph_task:
                found += self._call(graph_task)
        if not inside:
            found += self._idle(thread)
        return found

    def _of_node(self, graph_task: int, node: int) -> Iterator[StackFrame]:
        row = self.trace.node(graph_task, node, most_outputs=0)
        yield StackFrame(self.label(graph_task, node), graph_task, node, row.frame)
        module = module_of(row)
        if module:
            yield StackFrame(f"module {module}", graph_task, node, module=module)
        for frame in reversed(row.stack):
            if not frame.hidden:
                yield StackFrame(f"{frame.function} (forward)", graph_task, node, frame)

    def _call(self, graph_task: int) -> Iterator[StackFrame]:
        task = self.trace.graph_task(graph_task)
        what = "backward" if task.accumulate_grad else "grad"
        yield StackFrame(f"{what}() #{graph_task}", graph_task)
        for frame in reversed(self.trace.call_site(graph_task)):
            if not frame.hidden:
                yield StackFrame(frame.function, graph_task, None, frame)

    def _idle(self, thread: int) -> Iterator[StackFrame]:
        number = self.place.graph_task
        queue = next((row.queue for row in self.trace.threads if row.id == thread), None)
        if queue is not None and queue >= 0:
            yield StackFrame(f"waits for the ReadyQueue of {queue_label(queue)}", number)
        elif self.task.thread == thread:
            yield from self._call(number)
        else:
            yield StackFrame("is in no node", number)


def module_of(row: NodeRow) -> str:
    """Path of the module whose forward made a node, or that has its parameter; empty: none."""
    return row.parameter.rpartition(".")[0] if row.parameter else row.module or ""


def _subject(event: Event) -> int | None:
    """The node that an event is about: whose doing it was, where another one got something."""
    if isinstance(event, e.DependencyDecremented | e.GradientAccumulated) and event.producer >= 0:
        return event.producer
    node = getattr(event, "node", -1)
    return node if node >= 0 else None
