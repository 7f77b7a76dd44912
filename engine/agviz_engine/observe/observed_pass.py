"""ObservedPass: one call of the native engine, observed from hooks on the nodes of its graph.

It emits what the exact engine emits, at the places where ``evaluate_function`` does; what of it is
inferred is in Note [Observed and inferred].
"""

from __future__ import annotations

import functools
import logging
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, cast

import torch

from agviz_engine import events, interrupt
from agviz_engine.emissions import (
    ABSENT,
    ARRIVED,
    DELIVERED,
    ENDED,
    LEAF,
    clock,
    expand,
    next_two,
    took,
)
from agviz_engine.errors import text_of
from agviz_engine.graph_task import GraphRoot
from agviz_engine.nonfinite_check import check_outputs
from agviz_engine.python_hook import hook_name
from agviz_engine.ready_queue import NodeTask
from agviz_engine.tensor_facts import held_bytes
from agviz_engine.thread_state import NODE, current

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor
    from torch.autograd.graph import Node

    from agviz_engine.emit import Emitter
    from agviz_engine.graph_task import Capture, ExecInfo, GraphTask
    from agviz_engine.instruments import Registry
    from agviz_engine.node import NodeRef
    from agviz_engine.ready_queue import ReadyQueue
    from agviz_engine.thread_state import EngineThread

log = logging.getLogger("agviz_engine")

Gradients = tuple["Tensor | None", ...]
_C = cast("Any", torch._C)
_current_graph_task_id = _C._current_graph_task_id
_NAN: Final = re.compile(r"Function '(\w+)' returned nan values in its \d+th output\.")
"""What anomaly mode raises after the hooks of the node."""


UNCLAIMED: Final = -1
_NONE: Final = -2
"""``native_id`` of a pass of which nothing is observed any more."""


class Surroundings(Protocol):
    """What a pass needs of the engine that it is observed by."""

    registry: Registry
    emit: Emitter
    nonfinite_check: bool

    def claims(self, observed: ObservedPass, native_id: int, ref: NodeRef) -> bool:
        """Whether a graph task of torch, of which ``ref`` runs, is that of ``observed``."""

    def announce(self, thread: EngineThread, ref: NodeRef) -> None:
        """A node starts on a thread that may be new to some instrument."""

    def device_queue(self, device: int) -> ReadyQueue[GraphTask]:
        """The inferred ReadyQueue of a device."""

    def queues_of(self, graph_task: GraphTask) -> Iterator[ReadyQueue[GraphTask]]:
        """All inferred queues that may have tasks of a graph task."""


class _Arrived(NamedTuple):
    """The last gradient that arrived in a slot."""

    is_strided: bool
    times: int
    row: tuple[int, ...]
    producer: NodeRef


class ObservedPass:
    """One graph task of the native engine.

    Its hooks are called in other passes over the same nodes as well: each looks whether the graph
    task under way is its own.

    Args:
        engine: that it belongs to.
        graph_task: its graph has been walked.
        root_gradients: what backward or grad was given.
    """

    def __init__(
        self, engine: Surroundings, graph_task: GraphTask, root_gradients: Gradients
    ) -> None:
        self.engine = engine
        self.graph_task = graph_task
        self.thread = current()
        self.native_id = UNCLAIMED
        """Torch's number of the graph task, once the first node of it runs."""
        self.running: dict[int, NodeRef] = {}
        """Nodes that have started and not ended."""
        self.last: NodeRef | None = None
        """The node that ended last."""
        self._is_inferring = True
        self._callbacks = 0
        self._had_grad: set[int] = set()
        """Leaves under way that had a gradient before."""
        self._waiting: dict[int, dict[int, _Arrived]] = {}
        """By consumer and slot, what arrived at nodes that have not started."""
        self._sent: dict[tuple[int, int], tuple[int, int]] = {}
        """By consumer and slot, what tells apart the gradient that arrived there, unless it is a
        sum. A reference to it would keep the engine from taking it over."""
        self._captured: list[tuple[NodeRef, events.GradientCaptured, Capture]] = []
        self._root_gradients = root_gradients
        self._handles: list[Any] = []

    # -- the call -------------------------------------------------------------------------------

    def begin(self) -> None:
        """Put hooks on the nodes, and emit what the engine does before it runs any of them."""
        graph_task = self.graph_task
        root = graph_task.nodes[0]
        is_made_here = isinstance(root, GraphRoot)
        for ref in graph_task.nodes[1:] if is_made_here else graph_task.nodes:
            node = ref.node
            self._handles.append(node.register_prehook(functools.partial(self._started, ref)))
            self._handles.append(node.register_hook(functools.partial(self._finished, ref)))
        if is_made_here:
            self._push(self.thread, root)
            if graph_task.exec_info is None or graph_task.exec_info[0].needed:
                self._took(self.thread, root, self._root_gradients)
                self._ended(self.thread, root, self._root_gradients)
            return
        registry = self.engine.registry
        measurer = registry.measurer
        gradient = self._root_gradients[0]
        if gradient is not None and (registry.deliveries or measurer is not None):
            fact = -1, graph_task.root_edges[0][1], 0, held_bytes(gradient)
            row = self.engine.emit.row(graph_task, ARRIVED, root, *fact)
            if measurer is not None:
                measurer.given(graph_task, root, gradient, row, root)
            self.engine.emit.dispatch(graph_task, root, row, gradient)
            if registry.hook_called or measurer is not None:
                self._sent[root.index, graph_task.root_edges[0][1]] = _identity(gradient)
        self._push(self.thread, root)

    def met(self, node: Node | None) -> int:
        """A hook of the program runs in ``node``, which has started, maybe before our own hook.

        Returns:
            The index of the node; -1: it is none of the graph.
        """
        ref = None if node is None else self.graph_task.find(node)
        if ref is None:
            return -1
        if ref.index not in self.running:
            self.running[ref.index] = ref
            thread = current()
            thread.doing = thread.around, NODE, self.graph_task, ref, None
            self._took(thread, ref, ())
        return ref.index

    def end(self, results: Sequence[Tensor | None]) -> None:
        """Emit what the engine did without calling another node.

        Args:
            results: what ``grad`` gives back.
        """
        if self.graph_task.exec_info is not None:
            while self._is_inferring and self._take_captured(self.thread, None):
                pass
        measurer = self.engine.registry.measurer
        for ref, event, (slot, output) in self._captured if measurer is not None else ():
            gradient = results[output] if output < len(results) else None
            if gradient is None or measurer is None:
                continue
            if self._sent.get((ref.index, slot)) != _identity(gradient):
                measurer.result(self.graph_task, ref, gradient, event)

    def fail(self, error: BaseException) -> None:
        """Emit which nodes were under way when the engine raised ``error``."""
        emit = self.engine.emit
        found = list(self.running.values())
        nan = _NAN.match(text_of(error))
        if not found and nan is not None and self.last is not None and self.last.name == nan[1]:
            found.append(self.last)
        for ref in found:
            emit.node_failed(self.graph_task, ref, error)

    def leave(self) -> None:
        """Take the hooks off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._discard()

    def _discard(self) -> None:
        """Leave no task of this pass in a queue, where passes inside it or beside it meet them."""
        for queue in self.engine.queues_of(self.graph_task):
            queue.discard(self.graph_task)

    def guarded(self, act: Callable[[], object]) -> None:
        """Call ``act``, a step of observing, of which the program must feel nothing."""
        try:
            act()
        except Exception as error:  # noqa: BLE001 - whatever it is, the program has no part in it
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Go on without observing, here and in all passes that follow."""
        log.error(
            "a backward pass could not be observed to its end; it runs all the same",
            exc_info=error,
        )
        self.native_id = _NONE
        self.engine.registry.lose(error)

    # -- hooks ----------------------------------------------------------------------------------

    def _started(self, ref: NodeRef, gradients: Gradients) -> Gradients | None:
        """Pre-hook: ``ref`` is about to run on ``gradients``."""
        native = _current_graph_task_id()
        if native != self.native_id and not self.engine.claims(self, native, ref):
            return None
        try:
            replaced = self._start(ref, gradients)
        except Exception as error:  # noqa: BLE001 - the program must not feel it
            self._give_up(error)
            return None
        if ref.is_custom_function and current().interrupt is not None:
            interrupt.strike(current())
        return replaced

    def _start(self, ref: NodeRef, gradients: Gradients) -> Gradients | None:
        graph_task, thread = self.graph_task, current()
        if thread.announced != self.engine.registry.generation:
            self.engine.announce(thread, ref)
        thread.doing = thread.around, NODE, graph_task, ref, None
        is_known = ref.index in self.running
        self.running[ref.index] = ref
        if self._waiting:
            self._measure_sums(ref, gradients)
        if ref.is_accumulate_grad and ref.node.variable.grad is not None:
            self._had_grad.add(ref.index)
        changed = self._sent and self._changed(ref, gradients)
        replaced = None if is_known else self._took(thread, ref, gradients)
        if changed:
            self._hook_inferred(ref, gradients)
        return replaced

    def _finished(self, ref: NodeRef, outputs: Gradients, _inputs: Gradients) -> None:
        """Post-hook: ``ref`` put out ``outputs``."""
        if _current_graph_task_id() != self.native_id:
            return
        try:
            thread = current()
            self.running.pop(ref.index, None)
            self.last = ref
            if ref.is_accumulate_grad:
                self._accumulated(ref)
            self._ended(thread, ref, outputs)
            thread.doing = thread.around
        except Exception as error:  # noqa: BLE001 - the program must not feel it
            self._give_up(error)

    # -- what happens to a node -----------------------------------------------------------------

    def _took(self, thread: EngineThread, ref: NodeRef, gradients: Gradients) -> Gradients | None:
        """A node leaves its queue and starts.

        Returns:
            Other gradients, where an instrument asked for them.
        """
        graph_task, emit = self.graph_task, self.engine.emit
        if graph_task.exec_info is not None:
            while self._is_inferring and self._take_captured(thread, ref):
                pass
        row: tuple[int, ...] | None = None
        if self._is_inferring:
            queue = self._queue(ref)
            row = queue.pop_if_first(graph_task, ref, thread.thread_id)
            if row is None:
                self._withdraw(thread, ref, queue.first())
        if row is None:
            row = took(thread.thread_id, graph_task.id, ref.index, ref.device, -1)
        live = emit.took(graph_task, ref, row, gradients)
        if graph_task.exec_info is not None:
            self._capture(ref)
        if live is None or not live.replaced:
            return None
        for slot in live.replaced_slots():
            emit.intervened(graph_task, ref, "gradient", slot, live.inputs[slot])
        live.replaced.clear()
        return tuple(live.inputs)

    def _take_captured(self, thread: EngineThread, next_one: NodeRef | None) -> bool:
        """Take a node up that is next but is not run, because only its gradient is wanted.

        Args:
            thread: this one.
            next_one: the node that starts; None: none does.

        Returns:
            Whether there was one.
        """
        graph_task = self.graph_task
        queue = self._queue(next_one or graph_task.nodes[0])
        task = queue.first()
        ref = None if task is None or task.base is not graph_task else task.node
        exec_info = cast("list[ExecInfo]", graph_task.exec_info)
        if ref is None or ref is next_one or exec_info[ref.index].needed:
            return False
        row = cast("Any", queue.pop_observed(thread.thread_id).row)
        self.engine.emit.took(graph_task, ref, row, ())
        self._capture(ref)
        self.engine.emit.node_skipped(graph_task, ref, "captured")
        return True

    def _capture(self, ref: NodeRef) -> None:
        """Emit which of the node's incoming gradients ``grad`` gives back."""
        emit, registry = self.engine.emit, self.engine.registry
        for capture in cast("Any", self.graph_task.exec_info)[ref.index].captures:
            if registry.gradient_captured or registry.measurer is not None:
                event = emit.captured(self.graph_task, ref, capture)
                self._captured.append((ref, event, capture))

    def _measure_sums(self, ref: NodeRef, gradients: Gradients) -> None:
        """Measure what arrived in several parts: the sum is seen where the node starts on it."""
        measurer = self.engine.registry.measurer
        for slot, arrived in sorted(self._waiting.pop(ref.index, {}).items()):
            gradient = gradients[slot] if slot < len(gradients) else None
            if measurer is not None and arrived.times > 1 and gradient is not None:
                measurer.given(self.graph_task, arrived.producer, gradient, arrived.row, ref)

    def _changed(self, ref: NodeRef, gradients: Gradients) -> bool:
        """Whether a gradient that arrived is not the one on which the node starts."""
        changed = False
        for slot, gradient in enumerate(gradients):
            sent = self._sent.pop((ref.index, slot), None)
            if sent is not None and (gradient is None or sent != _identity(gradient)):
                changed = True
        return changed

    def _hook_inferred(self, ref: NodeRef, gradients: Gradients) -> None:
        """A hook before the node changed what arrived: nothing else is called in between."""
        registry, graph_task = self.engine.registry, self.graph_task
        hooks = ref.is_accumulate_grad and cast("Any", ref.node.variable)._backward_hooks
        name = ", ".join(map(hook_name, hooks.values())) if hooks else hook_name(None)
        event = self.engine.emit.hook_called(
            graph_task, ref, "tensor_pre", name, clock(), changed=True
        )
        if registry.measurer is not None and ref.index not in graph_task.nonfinite:
            registry.measurer.hook(graph_task, ref, event, (), gradients)

    def _accumulated(self, ref: NodeRef) -> None:
        """A gradient arrived in ``.grad``."""
        registry, graph_task = self.engine.registry, self.graph_task
        had_grad = ref.index in self._had_grad
        self._had_grad.discard(ref.index)
        measurer = registry.measurer
        if not registry.leaves and measurer is None:
            return
        row = self.engine.emit.row(graph_task, LEAF, ref)
        if measurer is not None:
            variable = ref.node.variable
            may_differ = had_grad or graph_task.may_sum(ref) or _has_hooks(variable)
            if may_differ and variable.grad is not None:
                measurer.result(graph_task, ref, variable.grad, expand(row)[0])
        if registry.leaf_accumulated:
            self.engine.emit.dispatch(graph_task, ref, row)

    def _ended(self, thread: EngineThread, ref: NodeRef, outputs: Gradients) -> None:
        """A node has its outputs, which go to their consumers."""
        graph_task, registry = self.graph_task, self.engine.registry
        graph_task.executed += 1
        if registry.measurer is not None:
            if outputs:
                registry.measurer.outputs(graph_task, ref, outputs)
        elif self.engine.nonfinite_check and registry.checks:
            check_outputs(self.engine.emit, graph_task, ref, outputs)
        released = ref.saves_tensors and not graph_task.keep_graph
        if registry.ends:
            fields = len(outputs), 1 if released else 0, ABSENT, ABSENT, ABSENT
            place = next_two()[0], clock(), thread.thread_id, graph_task.id
            row = *place, ENDED, ref.index, *fields
            if registry.journal is not None:
                registry.journal(row)
            if registry.saved_tensors_released or registry.node_finished:
                self.engine.emit.ended(graph_task, ref, row, outputs)
        if outputs:
            self._hand_on(thread, ref, outputs)

    def _hand_on(self, thread: EngineThread, ref: NodeRef, outputs: Gradients) -> None:
        """Follow the outputs of a node to their consumers, and queue those that are complete."""
        graph_task = self.graph_task
        if graph_task.threaded:
            with graph_task.mutex:
                ready, rows, held = self._distribute(thread, ref, outputs)
        else:
            ready, rows, held = self._distribute(thread, ref, outputs)
        if rows:
            self.engine.emit.delivered(graph_task, ref, rows, held)
        for consumer in ready:
            self._push(thread, consumer)

    def _distribute(  # noqa: C901 - calls for each gradient would cost more than what they do
        self, thread: EngineThread, ref: NodeRef, outputs: Gradients
    ) -> tuple[list[NodeRef], list[Any], list[Tensor | None]]:
        """Follow the edges of a node (the second half of ``Engine::evaluate_function``).

        Returns:
            The consumers that are complete; a row for each edge; what arrived by each, where an
            instrument observes that.
        """
        graph_task, registry = self.graph_task, self.engine.registry
        dependencies, exec_info = graph_task.dependencies, graph_task.exec_info
        compares = registry.hook_called or registry.measurer is not None
        wants_rows = registry.deliveries or compares
        ready: list[NodeRef] = []
        rows: list[Any] = []
        held: list[Tensor | None] = []
        now, place = clock(), (thread.thread_id, graph_task.id)
        for edge, output in zip(ref.next_edges, outputs, strict=False):
            if edge is None:
                continue
            consumer, slot = edge
            index = consumer.index
            remaining = dependencies[index] = dependencies[index] - 1
            is_wanted = exec_info is None or exec_info[index].should_execute()
            if wants_rows:
                nbytes = held_bytes(output) if output is not None and is_wanted else -1
                row = next_two()[0], now, *place, DELIVERED, index, ref.index, remaining, slot
                known = self._waiting[index].get(slot) if index in self._waiting else None
                added = 0 if known is None or nbytes < 0 else 1
                if nbytes >= 0 and (remaining or known is not None):
                    is_strided = cast("Tensor", output).layout is torch.strided
                    times = 1
                    if known is not None:  # how many elements a sparse sum has is not known
                        is_strided = is_strided and known.is_strided
                        nbytes = cast("Tensor", output).nbytes if is_strided else 0
                        times += known.times
                    arrived = _Arrived(is_strided, times, (*row, added, nbytes), ref)
                    self._waiting.setdefault(index, {})[slot] = arrived
                if compares and nbytes >= 0:
                    if known is None:
                        self._sent[index, slot] = _identity(cast("Tensor", output))
                    else:
                        self._sent.pop((index, slot), None)
                if self._is_inferring:
                    rows += (*row, added, nbytes)
                elif nbytes >= 0:
                    facts = ref.index, slot, added, nbytes
                    self.engine.emit.row(graph_task, ARRIVED, consumer, *facts)
                if registry.gradient_accumulated and self._is_inferring:
                    held.append(output if nbytes >= 0 and not added else None)
            if is_wanted and not remaining:
                ready.append(consumer)
        return ready, rows, held

    def observed_callback(self, callback: Callable[[], None]) -> Callable[[], None]:
        """A final callback of the program, which is observed when it runs."""
        self.met(_C._current_autograd_node())
        index, graph_task, emit = self._callbacks, self.graph_task, self.engine.emit
        self._callbacks += 1
        emit.callback_queued(graph_task, index, callback)

        def call() -> None:
            began = clock()
            callback()
            emit.callback_run(graph_task, index, began)

        return call

    # -- queues ---------------------------------------------------------------------------------

    def _queue(self, ref: NodeRef) -> ReadyQueue[GraphTask]:
        if ref.device == events.CPU_QUEUE:
            return self.graph_task.cpu_ready_queue
        return self.engine.device_queue(ref.device)

    def _push(self, thread: EngineThread, ref: NodeRef) -> None:
        if self._is_inferring:
            task = NodeTask(self.graph_task, ref, None)
            row = self._queue(ref).push_observed(task, thread.thread_id)
            self.engine.emit.queued(self.graph_task, ref, row)

    def _withdraw(
        self, thread: EngineThread, ref: NodeRef, first: NodeTask[GraphTask] | None
    ) -> None:
        """Infer nothing any more: ``ref`` started, and ``first`` was to be next."""
        self._is_inferring = False
        self._discard()
        expected = -1 if first is None or first.node is None else first.node.index
        self.engine.emit.withdrawn(thread, self.graph_task, ref, expected)


def _identity(gradient: Tensor) -> tuple[int, int]:
    """Tells whether a gradient that is alive is another, or was written to."""
    some = cast("Any", gradient)
    return some._cdata, 0 if some.is_inference() else some._version


def _has_hooks(variable: Tensor) -> bool:
    hooks = cast("Any", variable)
    return bool(hooks._backward_hooks or getattr(hooks, "_post_accumulate_grad_hooks", None))
