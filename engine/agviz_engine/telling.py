"""Telling instruments what the engine does: where facts become events.

On the hot path the engine looks itself whether anybody listens (``if hear.queue_push``) and saves
the call; the other methods look for themselves. Nothing is built for nobody.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from agviz_engine import events, saved_values
from agviz_engine.errors import text_of
from agviz_engine.health import FINITE, found_at_once, health_in, health_of, held_bytes
from agviz_engine.instruments import (
    ABSENT,
    Health,
    Live,
    Looked,
    Registry,
    clock,
    next_seq,
)
from agviz_engine.thread_state import current, is_traced, next_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agviz_engine.events import Event
    from agviz_engine.function_hook import Gradients, HookReport
    from agviz_engine.graph_task import Capture, GraphTask
    from agviz_engine.node import NodeRef
    from agviz_engine.ready_queue import ReadyQueue


_KINDS = {kind: number for number, kind in enumerate(events.EVENT_TYPES)}
PUSH = _KINDS[events.QueuePush]
POP = _KINDS[events.QueuePop]
STARTED = _KINDS[events.NodeStarted]
FINISHED = _KINDS[events.NodeFinished]
RELEASED = _KINDS[events.SavedTensorsReleased]
DECREMENT = _KINDS[events.DependencyDecremented]
ARRIVAL = _KINDS[events.GradientAccumulated]
_LEAF = _KINDS[events.LeafAccumulated]
_CHECKED = _KINDS[events.NonFiniteChecked]


class Decrement(NamedTuple):
    """What a DependencyDecremented event is made of once the lock is released."""

    consumer: NodeRef
    remaining: int
    seq: int
    time_ns: int


class Arrival(NamedTuple):
    """What a GradientAccumulated event is made of once the lock is released."""

    consumer: NodeRef
    slot: int
    added: bool
    gradient: Tensor
    seq: int
    time_ns: int


def _stamp(graph_task: GraphTask) -> tuple[int, int, int, int]:
    """The four fields with which every event begins."""
    return next_seq(), clock(), current().thread_id, graph_task.id


def _stamp_of_none() -> tuple[int, int, int, int]:
    return next_seq(), clock(), current().thread_id, events.NO_GRAPH_TASK


def _accumulated(
    graph_task: GraphTask, producer: NodeRef, fact: Arrival
) -> events.GradientAccumulated:
    consumer, slot, added, gradient, seq, now = fact
    thread, nbytes = current().thread_id, held_bytes(gradient)
    return events.GradientAccumulated(
        *(seq, now, thread, graph_task.id, consumer.index, producer.index), *(slot, added, nbytes)
    )


def _first_nonfinite(gradients: Sequence[Tensor | None]) -> Tensor | None:
    return next(
        (g for g in gradients if isinstance(g, Tensor) and not health_of(g).is_finite), None
    )


def _became_nonfinite(
    graph_task: GraphTask, ref: NodeRef, checks: Sequence[events.NonFiniteChecked]
) -> None:
    """Remember to which nodes non-finite gradients go."""
    for check in checks:
        edge = ref.next_edges[check.output] if check.output < len(ref.next_edges) else None
        if edge is not None:
            graph_task.nonfinite.add(edge[0].index)


def _note_given(graph_task: GraphTask, ref: NodeRef, health: Health) -> None:
    """Remember where a non-finite gradient came in that no node put out as it is."""
    if not health.is_finite:
        graph_task.nonfinite.add(ref.index)


class Telling:
    """Builds events and gives them to the instruments of a registry."""

    def __init__(self, registry: Registry) -> None:
        self._hear = registry

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

    # -- threads --------------------------------------------------------------------------------

    def thread(self, name: str, queue: int) -> None:
        """Give this thread its id, and announce it to instruments that do not know it yet."""
        hear = self._hear
        if current().announced == hear.generation:
            return
        current().announced = hear.generation
        if current().thread_id < 0:
            current().thread_id = next_thread()
        if hear.worker_started:
            thread = threading.current_thread()
            event = events.WorkerStarted(
                *_stamp_of_none(), name or thread.name, queue, thread.native_id or 0
            )
            hear.emit(hear.worker_started, event, Live(None))

    def worker_stopped(self) -> None:
        """A device thread ends."""
        hear = self._hear
        if hear.worker_stopped:
            hear.emit(hear.worker_stopped, events.WorkerStopped(*_stamp_of_none()), Live(None))

    def shutdown_task_pushed(self, queue: int) -> None:
        """A device thread was told to end."""
        hear = self._hear
        if hear.shutdown_task_pushed:
            event = events.ShutdownTaskPushed(*_stamp_of_none(), queue)
            hear.emit(hear.shutdown_task_pushed, event, Live(None))

    def delegated(self, reason: str) -> None:
        """A call goes to the native engine."""
        hear = self._hear
        if hear.delegated:
            event = events.Delegated(*_stamp_of_none(), reason)
            hear.emit(hear.delegated, event, Live(None))

    def delegated_failed(self, error: BaseException) -> None:
        """The native engine raised in a call that was handed to it."""
        hear = self._hear
        if hear.delegated_failed:
            event = events.DelegatedFailed(*_stamp_of_none(), type(error).__name__, text_of(error))
            hear.emit(hear.delegated_failed, event, Live(None))

    # -- graph tasks ----------------------------------------------------------------------------

    def begun(self, graph_task: GraphTask, roots: int, inputs: int) -> None:
        """A graph task was created."""
        hear = self._hear
        if hear.graph_task_begun:
            event = events.GraphTaskBegun(
                *_stamp(graph_task),
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
            hear.emit(hear.graph_task_begun, event, self.live(graph_task))

    def dependencies(self, graph_task: GraphTask, edges: int) -> None:
        """The graph was walked."""
        hear = self._hear
        if hear.dependencies_computed:
            event = events.DependenciesComputed(*_stamp(graph_task), len(graph_task.nodes), edges)
            hear.emit(hear.dependencies_computed, event, self.live(graph_task))

    def finished(self, graph_task: GraphTask) -> None:
        """A graph task came to its end."""
        hear = self._hear
        if hear.graph_task_finished:
            event = events.GraphTaskFinished(*_stamp(graph_task), graph_task.executed)
            hear.emit(hear.graph_task_finished, event, self.live(graph_task))

    def failed(self, graph_task: GraphTask, error: BaseException) -> None:
        """A graph task ended with an exception."""
        hear = self._hear
        if hear.graph_task_failed:
            event = events.GraphTaskFailed(
                *_stamp(graph_task), type(error).__name__, text_of(error)
            )
            hear.emit(hear.graph_task_failed, event, self.live(graph_task))

    def callback_queued(
        self, graph_task: GraphTask, index: int, callback: Callable[[], None]
    ) -> None:
        """A final callback was queued."""
        hear = self._hear
        if hear.final_callback_queued:
            live = self.live(graph_task)
            live.callback = callback
            event = events.FinalCallbackQueued(*_stamp(graph_task), index)
            hear.emit(hear.final_callback_queued, event, live)

    def callback_run(self, graph_task: GraphTask, index: int, began: int) -> None:
        """A final callback ran, from ``began`` (ns) until now."""
        hear = self._hear
        if hear.final_callback_run:
            event = events.FinalCallbackRun(*_stamp(graph_task), index, clock() - began)
            hear.emit(hear.final_callback_run, event, self.live(graph_task))

    # -- nodes ----------------------------------------------------------------------------------

    def node_started(
        self, graph_task: GraphTask, ref: NodeRef, inputs: Gradients
    ) -> tuple[Gradients, bool]:
        """A node is about to run.

        Returns:
            The gradients that it is to be given, and whether its hooks are left out.
        """
        hear = self._hear
        live = self.live(graph_task, ref)
        live.inputs = inputs
        event = events.NodeStarted(
            next_seq(), clock(), current().thread_id, graph_task.id, ref.index
        )
        hear.emit(hear.node_started, event, live)
        if not live.replaced and not live.skips_hooks:
            return inputs, False
        return self._steered(graph_task, ref, live)

    def _steered(self, graph_task: GraphTask, ref: NodeRef, live: Live) -> tuple[Gradients, bool]:
        """Tell what instruments asked for before the node runs, and take it off the live view."""
        hear = self._hear
        inputs, skips_hooks = tuple(live.inputs), live.skips_hooks
        slots = sorted(live.replaced)
        live.replaced.clear()
        live.skips_hooks = False
        for slot in slots:
            event = events.Intervened(*_stamp(graph_task), ref.index, "gradient", slot)
            live.gradient = gradient = inputs[slot]
            hear.emit(hear.intervened, event, live)
            if hear.gradient_measured and gradient is not None:
                health = health_of(gradient)
                self._measured(event, gradient, health, live)
                graph_task.nonfinite.discard(ref.index)
                _note_given(graph_task, ref, health)
            live.gradient = None
        if skips_hooks:
            self.intervened(graph_task, ref, "hooks")
        return inputs, skips_hooks

    def intervened(self, graph_task: GraphTask, ref: NodeRef, kind: str) -> None:
        """An instrument changed what happens to a node."""
        hear = self._hear
        if hear.intervened:
            event = events.Intervened(*_stamp(graph_task), ref.index, kind, -1)
            hear.emit(hear.intervened, event, self.live(graph_task, ref))

    def node_finished(
        self, graph_task: GraphTask, ref: NodeRef, outputs: Sequence[Tensor | None]
    ) -> None:
        """A node has its outputs."""
        hear = self._hear
        live = self.live(graph_task, ref)
        live.outputs = outputs
        event = events.NodeFinished(
            next_seq(), clock(), current().thread_id, graph_task.id, ref.index, len(outputs)
        )
        hear.emit(hear.node_finished, event, live)
        live.inputs = live.outputs = ()

    def node_failed(self, graph_task: GraphTask, ref: NodeRef, error: BaseException) -> None:
        """A node, its hook or its check raised."""
        hear = self._hear
        if hear.node_failed:
            event = events.NodeFailed(
                *_stamp(graph_task), ref.index, type(error).__name__, text_of(error)
            )
            hear.emit(hear.node_failed, event, self.live(graph_task, ref))

    def node_skipped(self, graph_task: GraphTask, ref: NodeRef, reason: str) -> None:
        """A node was taken up but not called."""
        hear = self._hear
        if hear.node_skipped:
            event = events.NodeSkipped(*_stamp(graph_task), ref.index, reason)
            hear.emit(hear.node_skipped, event, self.live(graph_task, ref))

    def released(self, graph_task: GraphTask, ref: NodeRef) -> None:
        """A node dropped what it had saved."""
        hear = self._hear
        event = events.SavedTensorsReleased(
            next_seq(), clock(), current().thread_id, graph_task.id, ref.index
        )
        hear.emit(hear.saved_tensors_released, event, self.live(graph_task, ref))

    def leaf_accumulated(
        self, graph_task: GraphTask, ref: NodeRef, gradient: Tensor | None = None
    ) -> None:
        """An AccumulateGrad wrote to its variable; ``gradient`` is to be measured."""
        hear = self._hear
        flat = hear.flat
        flat_numbers = hear.flat_numbers
        if flat is not None and (gradient is None or flat_numbers is not None):
            seq, now, node = next_seq(), clock(), ref.index
            place = seq, now, current().thread_id, graph_task.id
            row = *place, _LEAF, node, ABSENT, ABSENT, ABSENT, ABSENT, ABSENT
            flat(row)
            if gradient is None or flat_numbers is None:
                return
            at_once = found_at_once(gradient)
            if at_once is not None and at_once[1][FINITE] == at_once[0].numel:
                plain, found = at_once
                flat_numbers((seq, plain, *found[FINITE + 1 :]))
            else:
                event = events.LeafAccumulated(*place, node)
                self._measured(event, gradient, health_of(gradient), self.live(graph_task, ref))
            return
        event = events.LeafAccumulated(
            next_seq(), clock(), current().thread_id, graph_task.id, ref.index
        )
        live = self.live(graph_task, ref)
        hear.emit(hear.leaf_accumulated, event, live)
        if gradient is not None:
            self._measured(event, gradient, health_of(gradient), live)

    def captured(
        self,
        graph_task: GraphTask,
        ref: NodeRef,
        capture: Capture,
        gradient: Tensor | None = None,
    ) -> None:
        """``grad()`` took an incoming gradient; ``gradient`` is to be measured."""
        hear = self._hear
        if hear.gradient_captured or gradient is not None:
            event = events.GradientCaptured(*_stamp(graph_task), ref.index, *capture)
            live = self.live(graph_task, ref)
            hear.emit(hear.gradient_captured, event, live)
            if gradient is not None:
                self._measured(event, gradient, health_of(gradient), live)

    def non_finite_checked(
        self,
        graph_task: GraphTask,
        ref: NodeRef,
        output: int,
        gradient: Tensor,
        found: tuple[int, int, int],
    ) -> None:
        """One output was looked at."""
        hear = self._hear
        live = self.live(graph_task, ref)
        live.gradient = gradient
        event = events.NonFiniteChecked(*_stamp(graph_task), ref.index, output, *found)
        hear.emit(hear.non_finite_checked, event, live)
        live.gradient = None

    def outputs_measured(
        self, graph_task: GraphTask, ref: NodeRef, outputs: Sequence[Tensor | None]
    ) -> None:
        """Every output of a node is measured; the non-finite check follows from that.

        What is known of one that is not finite is told before its event: whoever stops there can
        read why.
        """
        hear = self._hear
        live = self.live(graph_task, ref)
        looked = graph_task.looked.pop(ref.index, None)
        nonfinite: list[events.NonFiniteChecked] = []
        for i, gradient in enumerate(outputs):
            if gradient is None:
                continue
            known = looked.health[i] if looked and looked.outputs[i] is gradient else None
            health = known or health_of(gradient)
            found = health.nan, health.posinf, health.neginf
            event = events.NonFiniteChecked(*_stamp(graph_task), ref.index, i, *found)
            if any(found):
                self._measured(event, gradient, health, live)
                if not nonfinite:
                    self._tell_saved(graph_task, ref, event, looked)
                nonfinite.append(event)
            live.gradient = gradient
            hear.emit(hear.non_finite_checked, event, live)
            if not any(found):
                self._measured(event, gradient, health, live)
            live.gradient = None
        _became_nonfinite(graph_task, ref, nonfinite)

    def outputs_noted(
        self,
        graph_task: GraphTask,
        ref: NodeRef,
        outputs: Sequence[Tensor | None],
        log: list[Any],
        numbers: list[Any],
    ) -> None:
        """As :meth:`outputs_measured`, where the only instrument takes health flat.

        What is finite and plain is left in ``log`` and ``numbers``; all else are events.
        """
        looked = graph_task.looked.pop(ref.index, None) if graph_task.looked else None
        thread, task, node = current().thread_id, graph_task.id, ref.index
        nonfinite: list[events.NonFiniteChecked] = []
        for i, gradient in enumerate(outputs):
            if gradient is None:
                continue
            known = looked.health[i] if looked and looked.outputs[i] is gradient else None
            at_once = found_at_once(gradient) if known is None else None
            seq, now = next_seq(), clock()
            if at_once is not None:
                plain, found = at_once
                if found[FINITE] == plain.numel:
                    log += seq, now, thread, task, _CHECKED, node, i, 0, 0, 0, ABSENT
                    numbers += seq, plain, *found[FINITE + 1 :]
                    continue
                known = health_in(plain, found)
            elif known is None:
                known = health_of(gradient)
            wrong = known.nan, known.posinf, known.neginf
            event = events.NonFiniteChecked(seq, now, thread, task, node, i, *wrong)
            live = self.live(graph_task, ref)
            self._hear.emit(self._hear.non_finite_checked, event, live)
            self._measured(event, gradient, known, live)
            if any(wrong):
                nonfinite.append(event)
        if nonfinite:
            self._tell_saved(graph_task, ref, nonfinite[-1], looked)
            _became_nonfinite(graph_task, ref, nonfinite)

    def _tell_saved(
        self,
        graph_task: GraphTask,
        ref: NodeRef,
        check: events.NonFiniteChecked,
        looked: Looked | None,
    ) -> None:
        hear = self._hear
        if ref.index not in graph_task.nonfinite and hear.saved_measured:
            live = self.live(graph_task, ref)
            live.saved = saved_values.measured(ref) if looked is None else looked.saved
            hear.emit(hear.saved_measured, check, live)
            live.saved = ()

    def _measured(self, event: Event, gradient: Tensor, health: Health, live: Live) -> None:
        live.gradient, live.health = gradient, health
        self._hear.emit(self._hear.gradient_measured, event, live)
        live.gradient = live.health = None

    def hook_report(self, graph_task: GraphTask, ref: NodeRef) -> HookReport | None:
        """What to call after each hook of ``ref``; None where nobody listens."""
        hear = self._hear
        if not hear.hook_called:
            return None

        def report(
            kind: str,
            name: str,
            began: int,
            given: Sequence[Tensor | None],
            gave: Sequence[Tensor | None],
        ) -> None:
            changed = gave is not given
            event = events.HookCalled(
                *_stamp(graph_task), ref.index, kind, name, clock() - began, changed
            )
            live = self.live(graph_task, ref)
            hear.emit(hear.hook_called, event, live)
            wrong = _first_nonfinite(gave) if changed and hear.gradient_measured else None
            if wrong is not None and _first_nonfinite(given) is None:
                self._measured(event, wrong, health_of(wrong), live)
                graph_task.nonfinite.add(ref.index)

        return report

    # -- gradients and queues -------------------------------------------------------------------

    def root_gradient(
        self, graph_task: GraphTask, ref: NodeRef, slot: int, gradient: Tensor
    ) -> None:
        """The caller's gradient of a single root arrived in its buffer."""
        hear = self._hear
        if hear.gradient_accumulated or hear.gradient_measured:
            live = self.live(graph_task, ref)
            live.gradient = gradient
            added = False
            event = events.GradientAccumulated(
                *_stamp(graph_task), ref.index, -1, slot, added, held_bytes(gradient)
            )
            hear.emit(hear.gradient_accumulated, event, live)
            if hear.gradient_measured:
                health = health_of(gradient)
                self._measured(event, gradient, health, live)
                _note_given(graph_task, ref, health)
            live.gradient = None

    def sums_measured(self, graph_task: GraphTask, ref: NodeRef, met: Sequence[Arrival]) -> None:
        """Measure what gradients that met in a slot came to, where no more can come."""
        for fact in met:
            event = _accumulated(graph_task, ref, fact)
            live, health = self.live(graph_task, ref), health_of(fact.gradient)
            self._measured(event, fact.gradient, health, live)
            _note_given(graph_task, fact.consumer, health)

    def handed_on(
        self, graph_task: GraphTask, ref: NodeRef, happened: Sequence[Decrement | Arrival]
    ) -> None:
        """A node's outputs went to their consumers; not for a recorder that takes flat events."""
        hear = self._hear
        live = self.live(graph_task, ref)
        thread = current().thread_id
        for fact in happened:
            if type(fact) is Decrement:
                if hear.dependency_decremented:
                    consumer, remaining, seq, now = fact
                    decremented = events.DependencyDecremented(
                        seq, now, thread, graph_task.id, consumer.index, ref.index, remaining
                    )
                    hear.emit(hear.dependency_decremented, decremented, live)
            elif type(fact) is Arrival and hear.gradient_accumulated:
                live.gradient = fact.gradient
                arrived = _accumulated(graph_task, ref, fact)
                hear.emit(hear.gradient_accumulated, arrived, live)
        live.gradient = None

    def pushed(
        self,
        graph_task: GraphTask,
        ref: NodeRef,
        queue: ReadyQueue,
        moment: tuple[int, int, int],
    ) -> None:
        """A task entered ``queue``; ``moment`` is sequence number, time in ns, size after it."""
        hear = self._hear
        seq, now, size = moment
        flat = hear.flat
        if flat is not None:
            place = seq, now, current().thread_id, graph_task.id
            flat((*place, PUSH, ref.index, queue.index, size, ABSENT, ABSENT, ABSENT))
            return
        event = events.QueuePush(
            seq, now, current().thread_id, graph_task.id, queue.index, ref.index, size
        )
        hear.emit(hear.queue_push, event, self.live(graph_task, ref))

    def popped(
        self,
        graph_task: GraphTask,
        ref: NodeRef,
        queue: ReadyQueue,
        moment: tuple[int, int, int],
    ) -> None:
        """A task left ``queue``; ``moment`` is sequence number, time in ns, size after it."""
        hear = self._hear
        seq, now, size = moment
        flat = hear.flat
        if flat is not None:
            place = seq, now, current().thread_id, graph_task.id
            flat((*place, POP, ref.index, queue.index, size, ABSENT, ABSENT, ABSENT))
            return
        event = events.QueuePop(
            seq, now, current().thread_id, graph_task.id, queue.index, ref.index, size
        )
        hear.emit(hear.queue_pop, event, self.live(graph_task, ref))
