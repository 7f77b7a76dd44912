"""Where a thread is stopped, and why; and what it is to do next."""

from __future__ import annotations

import queue
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from agviz.debugger.messages import Stopped
from agviz.errors import AgvizError
from agviz_engine import events

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.debugger.messages import How
    from agviz.debugger.node_facts import LiveNode
    from agviz.debugger.shell import Shell
    from agviz_engine.events import Event
    from agviz_engine.instruments import Live
    from agviz_engine.rewind import GoBack


class NotStoppedError(AgvizError):
    """Something was asked for that needs a stopped thread."""


class Step(NamedTuple):
    """A step that is under way."""

    how: How
    thread: int | None
    """Only this thread's; None: any."""
    graph_task: int
    """Where the step began."""
    node: int | None
    """The node in which it began; None: in none."""
    why: str = "step"
    """What the stop gives as its reason."""

    def is_done_by(self, event: Event) -> bool:
        """Whether this is where it ends."""
        if self.thread is not None and event.thread != self.thread:
            return False
        if self.how == "node":
            return isinstance(event, events.NodeStarted)
        if self.how == "event" or self.node is None:
            return True
        return (
            isinstance(
                event,
                events.HookCalled | events.NodeFinished | events.NodeFailed | events.NodeSkipped,
            )
            and (event.graph_task, event.node) == (self.graph_task, self.node)
        ) or (
            isinstance(event, events.GraphTaskFinished | events.GraphTaskFailed)
            and event.graph_task == self.graph_task
        )


class Until(NamedTuple):
    """A node to run to; the end of its graph task is as far as it goes."""

    graph_task: int
    node: int

    def is_done_by(self, event: Event) -> bool:
        """Whether this is where it ends."""
        if event.graph_task != self.graph_task:
            return False
        if isinstance(event, events.NodeStarted):
            return event.node == self.node
        return isinstance(event, events.GraphTaskFinished | events.GraphTaskFailed)


@dataclass(kw_only=True)
class Stop:
    """A thread that is stopped behind an event."""

    event: Event
    live: Live
    facts: LiveNode | None
    """Of the node that the event concerns, where it is alive."""
    reasons: list[str]
    breakpoints: list[int]
    passed: list[str] = field(default_factory=list)
    """What passed the bounds of data breakpoints."""
    inbox: queue.SimpleQueue[Callable[[], None] | None] = field(default_factory=queue.SimpleQueue)
    """What the thread is to do while it is stopped; None: go on."""
    resumed: bool = False
    going_back: GoBack | None = None
    """What the thread raises when it runs on; None: nothing."""
    shell: Shell | None = None
    """Begun when it is first asked for; it keeps its names as long as the thread is stopped."""

    @property
    def is_before_a_node(self) -> bool:
        """Whether the node has yet to run: gradients can be changed and hooks left out."""
        return isinstance(self.event, events.NodeStarted)

    def report(self) -> Stopped:
        """What a viewer gets to know of it."""
        event, facts = self.event, self.facts
        unsaid = {"seq", "time_ns", "thread", "graph_task"}
        stopped = Stopped(
            thread=event.thread,
            graph_task=event.graph_task,
            seq=event.seq,
            event=type(event).__name__,
            reasons=tuple(self.reasons),
            breakpoints=tuple(self.breakpoints),
            passed=tuple(self.passed),
            details={name: value for name, value in event._asdict().items() if name not in unsaid},
        )
        if facts is None:
            return stopped
        line = facts.line
        return replace(
            stopped,
            node=facts.node,
            name=facts.name,
            sequence_nr=facts.sequence_nr,
            device=facts.device,
            module=facts.module,
            parameter=facts.parameter,
            line="" if line is None else f"{line.file}:{line.line}",
            function="" if line is None else line.function,
        )
