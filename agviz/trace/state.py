"""BackwardState: the engine's state at one moment, replayed from events."""

from __future__ import annotations

from typing import NamedTuple, TYPE_CHECKING


if TYPE_CHECKING:
    from agviz_engine.events import Event
    from agviz.trace.rows import NodeStatus


class QueuedTask(NamedTuple):
    """A NodeTask in a ReadyQueue."""

    graph_task: int
    node: int
    """-1 for a task without a node: a wake-up or a shutdown."""


class QueueContents(NamedTuple):
    """One ReadyQueue."""

    queue: int
    """Device index, or -1 for the queue of a thread that calls backward."""
    thread: int | None
    """The thread that owns a queue -1; None for device queues."""
    tasks: tuple[QueuedTask, ...]
    """In the order in which they would be popped."""


class BackwardState:
    """What the engine knew after some events. :meth:`apply` is the only way it changes.

    It covers all graph tasks under way, and of those that ended the last ones of each calling
    thread. Methods that take a graph task and a node raise KeyError or IndexError for others.
    """

    seq: int
    """``seq`` of the last event applied, -1 at first."""
    time_ns: int
    """Its time, 0 at first."""

    def apply(self, event: Event) -> None:
        """Move on by one event.

        Raises:
            ImpossibleEventError: the event can't happen in this state (never in tolerant mode).
        """
        raise NotImplementedError

    def copy(self) -> BackwardState:
        """An independent copy."""
        raise NotImplementedError

    @property
    def graph_tasks(self) -> tuple[int, ...]:
        """The graph tasks this state covers."""
        raise NotImplementedError

    def status(self, graph_task: int, node: int) -> NodeStatus:
        """How far a node has come."""
        raise NotImplementedError

    def statuses(self, graph_task: int) -> list[NodeStatus]:
        """How far every node has come, by index."""
        raise NotImplementedError

    def remaining(self, graph_task: int, node: int) -> int:
        """Number of dependencies a node still waits for."""
        raise NotImplementedError

    def is_nonfinite(self, graph_task: int, node: int) -> bool:
        """Whether a non-finite element was found in an output of the node."""
        raise NotImplementedError

    def buffer(self, graph_task: int, node: int) -> dict[int, int]:
        """The node's InputBuffer: slots that hold a gradient, and their bytes."""
        raise NotImplementedError

    def queues(self) -> list[QueueContents]:
        """The ReadyQueues seen so far, callers' queues first."""
        raise NotImplementedError

    def running(self) -> dict[int, tuple[QueuedTask, ...]]:
        """For every thread inside a node: the nodes it is in, innermost (reentrant) last."""
        raise NotImplementedError

    def executed(self, graph_task: int) -> int:
        """Number of nodes that finished."""
        raise NotImplementedError

    @property
    def live_bytes(self) -> int:
        """Bytes of the gradients that stand in InputBuffers."""
        raise NotImplementedError
