"""ObservedPass: one call of the native engine, observed from hooks on the nodes of its graph.

It emits what the exact engine emits, at the places where ``evaluate_function`` does; what of it is
inferred is in Note [Observed and inferred].
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

import torch

from agviz_engine import events, interrupt
from agviz_engine.emissions import (
    ABSENT,
    ARRIVED,
    DELIVERED,
    ENDED,
    LEAF,
    PUSH,
    clock,
    expand,
    next_seq,
    took,
)
from agviz_engine.errors import comes_from_outside, text_of
from agviz_engine.graph_task import GraphRoot
from agviz_engine.nonfinite_check import check_outputs
from agviz_engine.observe.node_hooks import NodeHooks
from agviz_engine.python_hook import hook_name
from agviz_engine.tensor_facts import held_bytes
from agviz_engine.thread_state import NODE, current, here

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor
    from torch.autograd.graph import Node

    from agviz_engine.emit import Emitter
    from agviz_engine.graph_task import Capture, ExecInfo, GraphTask
    from agviz_engine.instruments import Registry
    from agviz_engine.node import NodeRef
    from agviz_engine.ready_queue import InferredQueue
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


_CPU: Final = events.CPU_QUEUE
_REST: Final = (ABSENT,) * 3
"""What fills the rows ``ENDED`` and ``PUSH``."""


class Surroundings(Protocol):
    """What a pass needs of the engine that it is observed by."""

    registry: Registry
    emit: Emitter
    nonfinite_check: bool

    def claims(self, observed: ObservedPass, native_id: int, ref: NodeRef) -> bool:
        """Whether a graph task of torch, of which ``ref`` runs, is that of ``observed``."""

    def announce(self, thread: EngineThread, ref: NodeRef) -> None:
        """A node starts on a thread that may be new to some instrument."""

    def device_queue(self, device: int) -> InferredQueue[GraphTask]:
        """The inferred ReadyQueue of a device."""

    def device_queues(self) -> list[InferredQueue[GraphTask]]:
        """Those of all devices."""


_Arrived: TypeAlias = "tuple[tuple[int, int], int, bool, tuple[int, ...], NodeRef]"
"""The last gradient that arrived in a slot: its :func:`_identity`; how many have arrived; whether
all of them are strided; the row of its arrival; who put it out. A reference to it would keep the
engine from taking it over."""


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
        self.running: dict[int, tuple[EngineThread, NodeRef]] = {}
        """Nodes that have started and not ended."""
        self.last: tuple[EngineThread, NodeRef] | None = None
        """The node that ended last."""
        self._device_threads: set[EngineThread] = set()
        """Torch's own threads that ran nodes of it."""
        self._is_inferring = True
        self._queue = self.thread.inferred_queue
        """That of the calling thread."""
        self._callbacks = 0
        self._had_grad: set[int] = set()
        """Leaves under way that had a gradient before."""
        self._count = len(graph_task.nodes)
        self._arrived: dict[int, _Arrived] = {}
        """What arrived at nodes that have not started, by :meth:`_place`."""
        self._captured: list[tuple[NodeRef, events.GradientCaptured, Capture]] = []
        self._root_gradients = root_gradients
        self._hooks = NodeHooks()

    # -- the call -------------------------------------------------------------------------------

    def begin(self) -> None:
        """Put hooks on the nodes, and emit what the engine does before it runs any of them."""
        graph_task = self.graph_task
        root = graph_task.nodes[0]
        is_made_here = isinstance(root, GraphRoot)
        nodes = graph_task.nodes[1:] if is_made_here else graph_task.nodes
        self._hooks.put_on(nodes, self._started, self._finished)
        if is_made_here:
            self._push(self.thread, root)
            if graph_task.exec_info is None or graph_task.exec_info[0].needed:
                self._took(self.thread, root, self._root_gradients)
                self._ended(self.thread, root, self._root_gradients)
            return
        registry = self.engine.registry
        measurer = registry.measurer
        gradient = self._root_gradients[0]
        if gradient is not None and registry.deliveries:
            slot = graph_task.root_edges[0][1]
            row = self.engine.emit.row(graph_task, ARRIVED, root, -1, slot, 0, held_bytes(gradient))
            if measurer is not None:
                measurer.given(graph_task, root, gradient, row, root)
            self.engine.emit.dispatch(graph_task, root, row, gradient)
            self._arrived[self._place(root.index, slot)] = _identity(gradient), 1, True, row, root
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
            thread = current()
            self.running[ref.index] = thread, ref
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
            arrived = self._arrived.get(self._place(ref.index, slot))
            if arrived is None or arrived[:2] != (_identity(gradient), 1):
                measurer.result(self.graph_task, ref, gradient, event)

    def fail(self, error: BaseException) -> None:
        """Emit which nodes were under way when the engine raised ``error``."""
        emit = self.engine.emit
        found = list(self.running.values())
        nan = _NAN.match(text_of(error))
        if not found and nan is not None and self.last is not None and self.last[1].name == nan[1]:
            found.append(self.last)
        for thread, ref in found:
            emit.node_failed(thread, self.graph_task, ref, error)

    def leave(self) -> None:
        """Take the hooks off."""
        self._hooks.take_off()
        self._discard()
        self._arrived.clear()
        for thread in self._device_threads:
            if thread.live is not None and thread.live.graph_task is self.graph_task:
                thread.live = None  # or the graph would stay alive until the thread's next pass

    def _discard(self) -> None:
        """Leave no task of this pass in a queue, where passes inside it or beside it meet them."""
        self._queue.discard(self.graph_task)
        for queue in self.engine.device_queues() if self.graph_task.threaded else ():
            queue.discard(self.graph_task)

    def guarded(self, act: Callable[[], object]) -> None:
        """Call ``act``, a step of observing, of which the program must feel nothing."""
        try:
            act()
        except Exception as error:
            if comes_from_outside(error):
                raise
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
            thread = here.thread
            if thread.announced != self.engine.registry.generation:
                self.engine.announce(thread, ref)
            if thread is not self.thread:
                self._device_threads.add(thread)
            thread.doing = thread.around, NODE, self.graph_task, ref, None
            is_known = ref.index in self.running
            self.running[ref.index] = thread, ref
            changed = self._meet_arrived(ref, gradients) if self._arrived else False
            if ref.is_accumulate_grad and ref.node.variable.grad is not None:
                self._had_grad.add(ref.index)
            replaced = None if is_known else self._took(thread, ref, gradients)
            if changed:
                self._hook_inferred(ref, gradients)
        except Exception as error:
            if comes_from_outside(error):
                raise
            self._give_up(error)
            return None
        if ref.is_custom_function and thread.interrupts:
            interrupt.strike(thread)
        return replaced

    def _finished(self, ref: NodeRef, outputs: Gradients, _inputs: Gradients) -> None:
        """Post-hook: ``ref`` put out ``outputs``."""
        if _current_graph_task_id() != self.native_id:
            return
        try:
            thread = here.thread
            self.running.pop(ref.index, None)
            self.last = thread, ref
            if ref.is_accumulate_grad:
                self._accumulated(ref)
            self._ended(thread, ref, outputs)
            thread.doing = thread.around
        except Exception as error:
            if comes_from_outside(error):
                raise
            self._give_up(error)

    # -- what happens to a node -----------------------------------------------------------------

    def _took(self, thread: EngineThread, ref: NodeRef, gradients: Gradients) -> Gradients | None:
        """A node leaves its queue and starts.

        Returns:
            Other gradients, where an instrument asked for them.
        """
        graph_task = self.graph_task
        if graph_task.exec_info is not None:
            while self._is_inferring and self._take_captured(thread, ref):
                pass
        size = -1
        if self._is_inferring:
            queue = self._queue if ref.device == _CPU else self._queue_of(ref)
            size = queue.pop_if_first(graph_task, ref)
            if size < 0:
                self._withdraw(thread, ref, queue.first())
        registry, live = self.engine.registry, None
        row = took(thread.thread_id, graph_task.id, ref.index, ref.device, size)
        if registry.dispatches_nodes or registry.journal is None:
            live = self.engine.emit.took(graph_task, ref, row, gradients)
        else:
            registry.journal(row)
        if graph_task.exec_info is not None:
            self._capture(ref)
        if live is None or not live.replaced:
            return None
        emit = self.engine.emit
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
        queue = self._queue_of(next_one or graph_task.nodes[0])
        first = queue.first()
        if first is None or first[0] is next_one or first[1] is not graph_task:
            return False
        ref, exec_info = first[0], cast("list[ExecInfo]", graph_task.exec_info)
        if exec_info[ref.index].needed:
            return False
        size = queue.pop_if_first(graph_task, ref)
        row = took(thread.thread_id, graph_task.id, ref.index, ref.device, size)
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

    def _place(self, index: int, slot: int) -> int:
        """Where in :attr:`_arrived` a slot of a node is."""
        return slot * self._count + index

    def _meet_arrived(self, ref: NodeRef, gradients: Gradients) -> bool:
        """Measure what arrived in several parts: the sum is seen where the node starts on it.

        Returns:
            Whether a gradient that arrived is not the one on which the node starts.
        """
        changed = False
        place = ref.index
        for gradient in gradients:
            arrived = self._arrived.pop(place, None)
            place += self._count
            if arrived is None:
                continue
            sent, times, _, row, producer = arrived
            if times > 1:
                measurer = self.engine.registry.measurer
                if measurer is not None and gradient is not None:
                    measurer.given(self.graph_task, producer, gradient, row, ref)
            elif gradient is None or sent != _identity(gradient):
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
        sizes: Sequence[int] = ()
        now = clock()
        if registry.measurer is not None:
            if outputs:
                sizes = registry.measurer.outputs(graph_task, ref, outputs, now)
        elif self.engine.nonfinite_check and registry.checks:
            check_outputs(self.engine.emit, graph_task, ref, outputs)
        distribute = self._distribute_locked if graph_task.threaded else self._distribute
        released = ref.saves_tensors and not graph_task.keep_graph
        journal = registry.journal
        place = thread.thread_id, graph_task.id
        row = next_seq(), now, *place, ENDED, ref.index, len(outputs), int(released), *_REST
        if journal is None or registry.dispatches_nodes:
            self._emit_ended(ref, outputs, row)
            rows, held = list[int](), list["Tensor | None"]()
            ready = distribute(thread, ref, outputs, sizes, now, rows, held)
            if rows:
                self.engine.emit.delivered(graph_task, ref, rows, held)
            for consumer in ready:
                self._push(thread, consumer)
            return
        # nobody comes in between: all rows in one go
        rows = list(row)
        for consumer in distribute(thread, ref, outputs, sizes, now, rows, []):
            if self._is_inferring:
                queue = self._queue if consumer.device == _CPU else self._queue_of(consumer)
                seq = next_seq()
                size = queue.push(graph_task, consumer)
                rows += seq, now, *place, PUSH, consumer.index, queue.index, size, *_REST
        journal(rows)

    def _emit_ended(self, ref: NodeRef, outputs: Gradients, row: tuple[int, ...]) -> None:
        registry = self.engine.registry
        if registry.journal is not None:
            registry.journal(row)
        if registry.ends_dispatched:
            self.engine.emit.ended(self.graph_task, ref, row, outputs)

    def _distribute_locked(self, *given: Any) -> list[NodeRef]:
        with self.graph_task.mutex:
            return self._distribute(*given)

    def _distribute(  # noqa: C901, PLR0912, PLR0915 - calls for each would cost more
        self,
        thread: EngineThread,
        ref: NodeRef,
        outputs: Gradients,
        sizes: Sequence[int],
        now: int,
        rows: list[int],
        held: list[Tensor | None],
    ) -> list[NodeRef]:
        """Follow the edges of a node (the second half of ``Engine::evaluate_function``).

        Args:
            thread: this one.
            ref: the node.
            outputs: of the node.
            sizes: of each in bytes, as far as they are known; -1: not known.
            now: when they were there (ns).
            rows: gets a row for each edge, where an instrument wants that.
            held: gets what arrived by each, where an instrument observes that.

        Returns:
            The consumers that are complete.
        """
        graph_task, registry = self.graph_task, self.engine.registry
        dependencies, exec_info = graph_task.dependencies, graph_task.exec_info
        number, task, node = thread.thread_id, graph_task.id, ref.index
        wants_rows = registry.deliveries or registry.measurer is not None
        is_wanted = True
        ready: list[NodeRef] = []
        edges = ref.next_edges
        if len(edges) != len(outputs):  # torch is about to refuse them
            edges = edges[: len(outputs)]
        output = -1
        for edge in edges:
            output += 1
            if edge is None:
                continue
            consumer, slot = edge
            index = consumer.index
            remaining = dependencies[index] = dependencies[index] - 1
            if exec_info is not None:
                is_wanted = exec_info[index].should_execute()
            if is_wanted and not remaining:
                ready.append(consumer)
            if not wants_rows:
                continue
            gradient, arrived = outputs[output] if is_wanted else None, None
            added, nbytes = 0, -1
            if gradient is not None:
                arrived = self._arrived.get(slot * self._count + index)
                if arrived is None:
                    if sizes:
                        nbytes = sizes[output]
                    if nbytes < 0:
                        nbytes = held_bytes(gradient)
                    is_strided = not remaining or gradient.layout is torch.strided
                else:  # how many elements a sparse sum has is not known
                    is_strided = arrived[2] and gradient.layout is torch.strided
                    added, nbytes = 1, gradient.nbytes if is_strided else 0
            if self._is_inferring:
                seq = next_seq()
                row = seq, now, number, task, DELIVERED, index, node, remaining, slot, added, nbytes
            elif gradient is not None:
                seq = next_seq()
                row = seq, now, number, task, ARRIVED, index, node, slot, added, nbytes, ABSENT
            else:
                continue
            rows += row
            if gradient is not None:
                times = 1 if arrived is None else arrived[1] + 1
                known = _identity(gradient), times, is_strided, row, ref
                self._arrived[slot * self._count + index] = known
            if registry.gradient_accumulated:
                held.append(None if added else gradient)
        return ready

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

    def _queue_of(self, ref: NodeRef) -> InferredQueue[GraphTask]:
        if ref.device == _CPU:
            return self._queue
        return self.engine.device_queue(ref.device)

    def _push(self, thread: EngineThread, ref: NodeRef) -> None:
        if self._is_inferring:
            queue, seq = self._queue_of(ref), next_seq()
            now, size = clock(), queue.push(self.graph_task, ref)
            place = seq, now, thread.thread_id, self.graph_task.id
            row = *place, PUSH, ref.index, queue.index, size, *_REST
            self.engine.emit.queued(self.graph_task, ref, row)

    def _withdraw(
        self, thread: EngineThread, ref: NodeRef, first: tuple[NodeRef, GraphTask] | None
    ) -> None:
        """Infer nothing any more: ``ref`` started, and ``first`` was to be next."""
        self._is_inferring = False
        self._discard()
        expected = -1 if first is None else first[0].index
        self.engine.emit.withdrawn(thread, self.graph_task, ref, expected)


def _identity(gradient: Tensor) -> tuple[int, int]:
    """Differs where a gradient that is alive is another, or was written to."""
    try:
        return id(gradient), gradient._version
    except RuntimeError:  # one made in inference mode has no version
        return id(gradient), 0


def _has_hooks(variable: Tensor) -> bool:
    hooks = cast("Any", variable)
    return bool(hooks._backward_hooks or getattr(hooks, "_post_accumulate_grad_hooks", None))
