"""Emit what the engine does: rows to the journal, and events to the instruments that observe them.

On the hot path the engine itself asks the registry whether anybody observes (``if registry.takes``)
and builds the row, which saves a call for each; the other methods ask themselves. Nothing is built
for nobody. A row of what happens under a lock is built there, with its number and time, and goes to
the journal, which never waits; events are dispatched outside the engine's locks.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from agviz_engine import events
from agviz_engine.emissions import (
    ABSENT,
    POP,
    PUSH,
    ROW,
    clock,
    expand,
    next_seq,
)
from agviz_engine.errors import text_of
from agviz_engine.instruments import Live, Registry, method_name
from agviz_engine.thread_state import current, is_traced, next_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from agviz_engine.function_hook import Gradients
    from agviz_engine.graph_task import Capture, GraphTask
    from agviz_engine.node import NodeRef
    from agviz_engine.thread_state import EngineThread

_REST = tuple((ABSENT,) * (ROW - 6 - fields) for fields in range(ROW - 5))
"""What fills a row, by the number of its fields from ``a`` on."""
_METHODS = {event_type: method_name(event_type) for event_type in events.EVENT_TYPES}


class Emitter:
    """Emits to the instruments of a registry."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def live(self, graph_task: GraphTask, ref: NodeRef | None = None) -> Live:
        """This thread's live view of ``graph_task``, turned to the node ``ref``."""
        live = current().live
        if live is None or live.graph_task is not graph_task:
            live = current().live = Live(graph_task)
        if ref is not None and live.node is not ref:
            live.node = ref
            live.inputs = live.outputs = ()
            live.gradient = None
        return live

    def stamp(self, graph_task: GraphTask | None) -> tuple[int, int, int, int]:
        """The four fields with which an event begins that happens now."""
        number = events.NO_GRAPH_TASK if graph_task is None else graph_task.id
        return next_seq(), clock(), current().thread_id, number

    def event(self, event: events.Event, live: Live) -> None:
        """Dispatch an event to those who observe it."""
        registry = self._registry
        observers = getattr(registry, _METHODS[type(event)])
        if observers:
            registry.dispatch(observers, event, live)

    def row(
        self,
        graph_task: GraphTask,
        kind: int,
        ref: NodeRef,
        *fields: int,
        at: int | None = None,
    ) -> tuple[int, ...]:
        """Put a row into the journal, with ``fields`` in the columns from ``a``.

        Args:
            graph_task: that it belongs to.
            kind: of :mod:`agviz_engine.emissions`.
            ref: the node that is under way.
            fields: the values.
            at: when it happened (ns); None: now.

        Returns:
            The row, for :meth:`dispatch`.
        """
        rest = _REST[len(fields)]
        place = next_seq(), clock() if at is None else at, current().thread_id, graph_task.id
        row = *place, kind, ref.index, *fields, *rest
        if self._registry.journal is not None:
            self._registry.journal(row)
        return row

    def dispatch(
        self,
        graph_task: GraphTask,
        ref: NodeRef,
        row: Sequence[int],
        gradient: Tensor | None = None,
    ) -> None:
        """Dispatch the events of a row that is in the journal to those who observe them.

        Args:
            graph_task: that it belongs to.
            ref: the node that is under way.
            row: of :mod:`agviz_engine.emissions`.
            gradient: for ``Live.gradient``.
        """
        live = self.live(graph_task, ref)
        live.gradient = gradient
        for event in expand(row):
            self.event(event, live)
        live.gradient = None

    # -- threads --------------------------------------------------------------------------------

    def thread(self, name: str, queue: int) -> None:
        """Give this thread its id, and announce it to instruments that do not know it yet."""
        registry = self._registry
        if current().announced == registry.generation:
            return
        current().announced = registry.generation
        if current().thread_id < 0:
            current().thread_id = next_thread()
        if registry.worker_started:
            thread = threading.current_thread()
            if queue > events.CPU_QUEUE and isinstance(thread, threading._DummyThread):
                name = name or f"pt_autograd_{queue}"  # torch's own, of which Python knows no name
            facts = name or thread.name, queue, thread.native_id or 0
            self.event(events.WorkerStarted(*self.stamp(None), *facts), Live(None))

    def worker_stopped(self) -> None:
        """A device thread ends."""
        if self._registry.worker_stopped:
            self.event(events.WorkerStopped(*self.stamp(None)), Live(None))

    def shutdown_task_pushed(self, queue: int) -> None:
        """A shutdown task entered the queue of a device thread."""
        if self._registry.shutdown_task_pushed:
            self.event(events.ShutdownTaskPushed(*self.stamp(None), queue), Live(None))

    def delegated(self, reason: str) -> None:
        """A call goes to the native engine."""
        if self._registry.delegated:
            self.event(events.Delegated(*self.stamp(None), reason), Live(None))

    def delegated_failed(self, error: BaseException) -> None:
        """The native engine raised in a call that was handed to it."""
        if self._registry.delegated_failed:
            facts = type(error).__name__, text_of(error)
            self.event(events.DelegatedFailed(*self.stamp(None), *facts), Live(None))

    # -- graph tasks ----------------------------------------------------------------------------

    def begun(self, graph_task: GraphTask, roots: int, inputs: int) -> None:
        """A graph task was created."""
        if self._registry.graph_task_begun:
            event = events.GraphTaskBegun(
                *self.stamp(graph_task),
                graph_task.parent,
                graph_task.parent_node,
                graph_task.reentrant_depth,
                graph_task.keep_graph,
                graph_task.create_graph,
                graph_task.accumulate_grad,
                roots,
                inputs,
                is_traced(),
            )
            self.event(event, self.live(graph_task))

    def dependencies(self, graph_task: GraphTask, edges: int) -> None:
        """The graph was walked."""
        if self._registry.dependencies_computed:
            facts = len(graph_task.nodes), edges
            event = events.DependenciesComputed(*self.stamp(graph_task), *facts)
            self.event(event, self.live(graph_task))

    def finished(self, graph_task: GraphTask) -> None:
        """A graph task came to its end."""
        if self._registry.graph_task_finished:
            event = events.GraphTaskFinished(*self.stamp(graph_task), graph_task.executed)
            self.event(event, self.live(graph_task))

    def failed(self, graph_task: GraphTask, error: BaseException) -> None:
        """A graph task ended with an exception."""
        if self._registry.graph_task_failed:
            facts = type(error).__name__, text_of(error)
            event = events.GraphTaskFailed(*self.stamp(graph_task), *facts)
            self.event(event, self.live(graph_task))

    def callback_queued(
        self, graph_task: GraphTask, index: int, callback: Callable[[], None]
    ) -> None:
        """A final callback was queued."""
        if self._registry.final_callback_queued:
            live = self.live(graph_task)
            live.callback = callback
            self.event(events.FinalCallbackQueued(*self.stamp(graph_task), index), live)

    def callback_run(self, graph_task: GraphTask, index: int, began: int) -> None:
        """A final callback ran, from ``began`` (ns) until now."""
        if self._registry.final_callback_run:
            event = events.FinalCallbackRun(*self.stamp(graph_task), index, clock() - began)
            self.event(event, self.live(graph_task))

    # -- queues ---------------------------------------------------------------------------------

    def queued(self, graph_task: GraphTask, ref: NodeRef, row: tuple[int, ...]) -> None:
        """A task entered a queue (row ``PUSH``) or left it only to be skipped (``POP``)."""
        registry = self._registry
        if registry.journal is not None:
            registry.journal(row)
        if registry.queue_push if row[4] == PUSH else registry.queue_pop:
            self.dispatch(graph_task, ref, row)

    def skipped(self, graph_task: GraphTask, ref: NodeRef, took: tuple[int, ...] | None) -> None:
        """A task left its queue after its graph task had failed; ``took``: its row as it left."""
        if took is not None:
            self.queued(graph_task, ref, (*took[:4], POP, *took[5:]))
        self.node_skipped(graph_task, ref, "error")

    def took(
        self, graph_task: GraphTask, ref: NodeRef, row: tuple[int, ...], inputs: Gradients
    ) -> Live | None:
        """A task left its queue and its node is about to run on ``inputs``.

        Returns:
            The live view where an instrument asked for other gradients, or to skip the hooks.
        """
        registry = self._registry
        if registry.journal is not None:
            registry.journal(row)
        if not registry.takes_dispatched:
            return None
        live = self.live(graph_task, ref)
        live.inputs = inputs
        self.dispatch(graph_task, ref, row)
        return live if live.replaced or live.skips_hooks else None

    def withdrawn(
        self, thread: EngineThread, graph_task: GraphTask, ref: NodeRef, expected: int
    ) -> None:
        """A node started that was not inferred to be the next."""
        if self._registry.inference_withdrawn:
            place = next_seq(), clock(), thread.thread_id, graph_task.id
            event = events.InferenceWithdrawn(*place, ref.index, expected)
            self.event(event, self.live(graph_task, ref))

    # -- nodes ----------------------------------------------------------------------------------

    def intervened(
        self,
        graph_task: GraphTask,
        ref: NodeRef,
        kind: str,
        slot: int = -1,
        gradient: Tensor | None = None,
    ) -> events.Intervened:
        """An instrument changed what happens to a node."""
        event = events.Intervened(*self.stamp(graph_task), ref.index, kind, slot)
        live = self.live(graph_task, ref)
        live.gradient = gradient
        self.event(event, live)
        live.gradient = None
        return event

    def ended(
        self,
        graph_task: GraphTask,
        ref: NodeRef,
        row: tuple[int, ...],
        outputs: Sequence[Tensor | None],
    ) -> None:
        """Dispatch that a node has its outputs; the row is in the journal."""
        live = self.live(graph_task, ref)
        live.outputs = outputs
        self.dispatch(graph_task, ref, row)
        live.inputs = live.outputs = ()

    def node_failed(
        self, thread: EngineThread, graph_task: GraphTask, ref: NodeRef, error: BaseException
    ) -> None:
        """A node that ``thread`` ran, its hook or its check raised."""
        if self._registry.node_failed:
            place = next_seq(), clock(), thread.thread_id, graph_task.id
            facts = ref.index, type(error).__name__, text_of(error)
            event = events.NodeFailed(*place, *facts)
            self.event(event, self.live(graph_task, ref))

    def node_skipped(self, graph_task: GraphTask, ref: NodeRef, reason: str) -> None:
        """A node was taken up but not called."""
        if self._registry.node_skipped:
            event = events.NodeSkipped(*self.stamp(graph_task), ref.index, reason)
            self.event(event, self.live(graph_task, ref))

    def hook_called(
        self,
        graph_task: GraphTask,
        ref: NodeRef,
        kind: str,
        name: str,
        began: int,
        *,
        changed: bool,
    ) -> events.HookCalled:
        """A hook returned that was called at ``began`` (ns)."""
        took, place = clock() - began, self.stamp(graph_task)
        event = events.HookCalled(*place, ref.index, kind, name, took, changed)
        self.event(event, self.live(graph_task, ref))
        return event

    def captured(
        self, graph_task: GraphTask, ref: NodeRef, capture: Capture
    ) -> events.GradientCaptured:
        """``grad()`` took an incoming gradient."""
        event = events.GradientCaptured(*self.stamp(graph_task), ref.index, *capture)
        self.event(event, self.live(graph_task, ref))
        return event

    def delivered(
        self,
        graph_task: GraphTask,
        ref: NodeRef,
        rows: list[Any],
        held: Sequence[Tensor | None],
    ) -> None:
        """Outputs of a node went to their consumers.

        Args:
            graph_task: of the node.
            ref: the node.
            rows: one for each edge that was followed, one behind the other.
            held: what the slot holds since to which each leads; empty where nobody observes
                GradientAccumulated.
        """
        registry = self._registry
        if registry.journal is not None:
            registry.journal(rows)
        if registry.deliveries_dispatched:
            for place, begin in enumerate(range(0, len(rows), ROW)):
                gradient = held[place] if held else None
                self.dispatch(graph_task, ref, rows[begin : begin + ROW], gradient)
