"""Reading a trace: the one way from a ``*.agviz`` file to rows, events and replayed state."""

from __future__ import annotations

from typing import Self, TYPE_CHECKING


if TYPE_CHECKING:
    from agviz_engine.events import Event
    from agviz.trace.rows import (
        EdgeRow,
        ExecutionRow,
        GraphTaskRow,
        HookTime,
        Meta,
        NodeRow,
        NonFiniteRow,
        Slowest,
        ThreadRow,
        ThreadTime,
    )
    from agviz.trace.state import BackwardState
    from types import TracebackType
    from os import PathLike


class Trace:
    """A recorded file, finished or still growing. Use :meth:`open`; it is a context manager.

    Everything is read when asked for, so a growing file shows its newest committed state. A trace
    belongs to the thread that opened it. Every method may raise
    :class:`agviz.errors.TraceError` where the file turns out to be damaged.
    """

    @classmethod
    def open(cls, path: str | PathLike[str]) -> Self:
        """Open ``path`` for reading; the file is never written to.

        Raises:
            agviz.errors.TraceError: no such file, a folder, empty, not SQLite, not a trace,
                damaged, or written by a newer agviz.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Let go of the file; a second call has no effect."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def path(self) -> str:
        """The path that was opened, control characters replaced."""
        raise NotImplementedError

    @property
    def meta(self) -> Meta:
        """What was recorded. ``meta.end_ns is None``: cut off, or still growing."""
        raise NotImplementedError

    @property
    def threads(self) -> list[ThreadRow]:
        """The threads that took part, by id."""
        raise NotImplementedError

    @property
    def graph_tasks(self) -> list[GraphTaskRow]:
        """The graph tasks, by id: in order of creation."""
        raise NotImplementedError

    def graph_task(self, graph_task: int) -> GraphTaskRow:
        """One graph task. Raises TraceError where the trace has none with this id."""
        raise NotImplementedError

    def nodes(self, graph_task: int) -> list[NodeRow]:
        """The nodes of a graph task: ``nodes(g)[i].index == i``."""
        raise NotImplementedError

    def edges(self, graph_task: int) -> list[EdgeRow]:
        """The edges of a graph task, by producer and output."""
        raise NotImplementedError

    def executions(self, graph_task: int) -> list[ExecutionRow]:
        """The nodes taken up by a thread, in the order of NodeStarted."""
        raise NotImplementedError

    def event_count(self, graph_task: int | None = None) -> int:
        """Number of events of a graph task, or of the whole trace."""
        raise NotImplementedError

    def events(
        self, graph_task: int | None = None, offset: int = 0, limit: int = 100
    ) -> list[Event]:
        """Events ``offset`` to ``offset + limit`` in order of ``seq``, as they were emitted.

        Args:
            graph_task: only those of this graph task; None: all.
            offset: position of the first, from 0.
            limit: at most this many.
        """
        raise NotImplementedError

    def position(self, seq: int, graph_task: int | None = None) -> int:
        """Number of events (of ``graph_task``) before the one with ``seq``: its ``offset``."""
        raise NotImplementedError

    def story(self, graph_task: int, node: int) -> list[Event]:
        """Every event that concerns a node: those of the node itself, and those in which it gave
        a gradient to a consumer (``producer``), in order."""
        raise NotImplementedError

    def nonfinite(self, graph_task: int | None = None, limit: int = 1000) -> list[NonFiniteRow]:
        """Outputs with NaN or infinities, in order of detection."""
        raise NotImplementedError

    def first_nonfinite(self, graph_task: int | None = None) -> NonFiniteRow | None:
        """The first output with NaN or infinities, or None."""
        raise NotImplementedError

    def slowest(self, n: int = 10, graph_task: int | None = None) -> Slowest:
        """The ``n`` types of nodes with the largest total time and the ``n`` longest executions."""
        raise NotImplementedError

    def hook_times(self, graph_task: int | None = None) -> list[HookTime]:
        """Time spent in hooks, the largest total first."""
        raise NotImplementedError

    def thread_times(self, graph_task: int | None = None) -> list[ThreadTime]:
        """What every thread did, by thread id."""
        raise NotImplementedError

    def state_at(self, graph_task: int, position: int) -> BackwardState:
        """The engine's state after the first ``position`` events of a graph task.

        Args:
            graph_task: whose events are counted; the state holds what else was under way too.
            position: 0 (before GraphTaskBegun) to ``event_count(graph_task)``.

        Returns:
            A state of the caller's own, which may be moved on with ``apply``.
        """
        raise NotImplementedError
