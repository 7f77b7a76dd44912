"""Tape: what was emitted of a pass, so that a second run of it begins with what it takes over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agviz_engine import events
from agviz_engine.emissions import ROW, clock, next_seq
from agviz_engine.instruments import Instrument, method_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz_engine.instruments import Live, Registry

_GRAPH_TASK = 3
_KIND = 4


class Tape(Instrument):
    """Keeps rows and events of graph tasks that can go back, for instruments with a journal.

    Of the events that are no rows it keeps those that say what state the engine is in; calls of
    hooks are not taken over, as they are not called again.
    """

    kinds = frozenset(
        {
            *(events.NodeSkipped, events.GradientCaptured, events.FinalCallbackQueued),
            events.Intervened,
        }
    )

    def __init__(self) -> None:
        self._kept: dict[int, list[Sequence[Any]]] = {}
        """Rows and events by graph task."""
        self.journal = self._take

    def begin(self, graph_task: int) -> None:
        """Keep what is emitted of a graph task."""
        self._kept[graph_task] = []

    def end(self, graph_task: int) -> None:
        """Keep nothing of it any more."""
        self._kept.pop(graph_task, None)

    def any_event(self, event: events.Event, live: Live) -> None:  # noqa: ARG002
        """Keep an event."""
        kept = self._kept.get(event.graph_task)
        if kept is not None:
            kept.append(event)

    def _take(self, rows: Sequence[Any]) -> None:
        kept = self._kept.get(rows[_GRAPH_TASK])
        if kept is not None:
            kept += [tuple(rows[begin : begin + ROW]) for begin in range(0, len(rows), ROW)]

    def length(self, graph_task: int) -> int:
        """How much of a graph task is on the tape."""
        return len(self._kept.get(graph_task, ()))

    def replay(
        self, graph_task: int, again: int, length: int, registry: Registry, live: Live
    ) -> None:
        """Emit again what was emitted of a graph task, as that of another, to journals only.

        Args:
            graph_task: that was on the tape.
            again: to which it is taken over, at this moment.
            length: of what is taken over.
            registry: of the instruments.
            live: for the events that are no rows.
        """
        now = clock()
        for one in self._kept.pop(graph_task, [])[:length]:
            if hasattr(one, "_replace"):
                event: Any = one._replace(seq=next_seq(), time_ns=now, graph_task=again)
                observers = getattr(registry, method_name(type(event)))
                with_journal = tuple(each for each in observers if _has_journal(each))
                registry.dispatch(with_journal, event, live)
            elif registry.journal is not None:
                registry.journal((next_seq(), now, one[2], again, *one[_KIND:]))


def _has_journal(observer: Any) -> bool:
    return getattr(getattr(observer, "__self__", None), "journal", None) is not None
