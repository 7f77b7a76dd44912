"""ObservingEngine: what torch's Python code calls, ``run_backward`` of the native engine, observed.

Takes the place of ``torch._C._ImperativeEngine`` under
``torch.autograd.Variable._execution_engine`` while the native engine is observed, and hands every
call on to it.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import re
import threading
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge
from torch.autograd.variable import Variable

from agviz_engine import deep_graphs, events, interrupt, left_out
from agviz_engine.backward_call import UNJUDGED, parse, unseen_by_dynamo, why_native
from agviz_engine.device_policy import real_device
from agviz_engine.emit import Emitter
from agviz_engine.errors import comes_from_outside, text_of
from agviz_engine.gradient_edge import root_edge
from agviz_engine.graph_task import Edge, GraphRoot, GraphTask
from agviz_engine.graph_walk import collecting_nothing, walk
from agviz_engine.instruments import Registry, own_packages
from agviz_engine.observe import hidden_mode
from agviz_engine.observe.caller import call_as_caller
from agviz_engine.observe.observed_node import measure_paths, observed_node
from agviz_engine.observe.observed_pass import UNCLAIMED, ObservedPass
from agviz_engine.ready_queue import InferredQueue
from agviz_engine.thread_state import current

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agviz_engine.backward_call import EngineCall
    from agviz_engine.instruments import Instrument
    from agviz_engine.node import NodeRef
    from agviz_engine.thread_state import EngineThread

log = logging.getLogger("agviz_engine")
own_packages.add(__package__)  # without agviz no Python runs between two nodes

_C = cast("Any", torch._C)
_native: Any = _C._ImperativeEngine()
"""The native engine: every instance of this type is a handle to the one C++ engine."""


_UNUSED = re.compile("differentiated Tensors? .*appears? to not have been used in the graph")


class ObservingEngine(_C._ImperativeEngine):  # type: ignore[misc, name-defined]
    """The object behind ``Variable._execution_engine`` while the native engine is observed."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = Registry()
        self.emit = Emitter(self.registry)
        self.nonfinite_check = False
        self._passes: dict[int, ObservedPass] = {}
        """By torch's number of the graph task, once that is known."""
        self._unclaimed: list[ObservedPass] = []
        """Passes of which no node has run yet."""
        self._queues: dict[int, InferredQueue[GraphTask]] = {}
        self._lock = threading.RLock()

    @unseen_by_dynamo
    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        """Run a backward pass on the native engine, which checks the arguments itself.

        Raises:
            BaseException: whatever the native engine raises, unchanged.
        """
        is_within = _C._current_graph_task_id() != -1
        is_observed = is_within and self._under_way() is not None
        if left_out.leaves_out(self.registry, args, kwargs, is_within=is_observed):
            return left_out.run(self.emit, _native.run_backward, args, kwargs)
        if is_within:
            return self._run(args, kwargs)
        with interrupt.held_back():
            return self._run(args, kwargs)

    def queue_callback(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` at the end of the current backward pass (``Engine::queue_callback``)."""
        observed = self._under_way()
        if observed is None:
            _native.queue_callback(callback)
            return
        _native.queue_callback(observed.observed_callback(callback))

    def is_checkpoint_valid(self) -> bool:
        """Whether reentrant checkpointing may run here."""
        return bool(_native.is_checkpoint_valid())

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        call = parse(args, kwargs)
        reason = UNJUDGED if call is None else why_native()
        if call is None or reason is not None:
            return self._delegate(reason or "", args, kwargs)
        thread = current()
        outer = thread.doing, thread.around, thread.live
        observed = self._prepared(call)
        if observed is None:
            thread.live = outer[2]
            return call_as_caller(_native.run_backward, *args, **kwargs)
        graph_task = observed.graph_task
        thread.around = thread.doing
        with collecting_nothing():
            observed.guarded(observed.begin)
        try:
            with hidden_mode.unfelt():
                results = call_as_caller(_native.run_backward, *args, **kwargs)
        except BaseException as error:
            if _UNUSED.search(text_of(error)) and not observed.running:  # the engine was through
                observed.guarded(functools.partial(observed.end, ()))
                self.emit.finished(graph_task)
            else:
                observed.guarded(functools.partial(observed.fail, error))
                self.emit.failed(graph_task, error)
            raise
        else:
            observed.guarded(functools.partial(observed.end, results or ()))
            self.emit.finished(graph_task)
            return results
        finally:
            thread.doing, thread.around, thread.live = outer
            self._forget(observed)
            deep_graphs.let_go_with(call.tensors)

    def _delegate(self, reason: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Hand a call on that can't be observed, and say so; silently where there is no reason."""
        if reason:
            enclosing = self._under_way()
            if enclosing is not None:  # a hook that was called before ours
                enclosing.guarded(lambda: enclosing.met(_C._current_autograd_node()))
            self.emit.delegated(reason)
        try:
            return call_as_caller(_native.run_backward, *args, **kwargs)
        except BaseException as error:
            if reason:
                self.emit.delegated_failed(error)
            raise

    # -- the graph ------------------------------------------------------------------------------

    def _prepared(self, call: EngineCall) -> ObservedPass | None:
        """Walk the graph of a call; None: that failed, and nothing is observed any more."""
        graph_task: GraphTask | None = None
        try:
            self.emit.thread("", events.CPU_QUEUE)
            enclosing = self._under_way()
            thread = current()
            graph_task = GraphTask(
                keep_graph=call.keep_graph,
                create_graph=call.create_graph,
                accumulate_grad=call.accumulate_grad,
                reentrant_depth=enclosing.graph_task.reentrant_depth + 1 if enclosing else 0,
                cpu_ready_queue=thread.local_ready_queue,
            )
            graph_task.root_tensors = call.tensors
            if enclosing is not None:
                graph_task.parent = enclosing.graph_task.id
                graph_task.parent_node = enclosing.met(_C._current_autograd_node())
            self.emit.begun(graph_task, len(call.tensors), len(call.inputs))
            self._walk(graph_task, call)
            observed = ObservedPass(self, graph_task, call.grad_tensors)
        except Exception as error:
            if comes_from_outside(error):
                raise
            log.exception("a backward pass could not be observed; it runs all the same")
            self.registry.lose(error)
            return None
        except BaseException as error:  # the program is interrupted before torch is called
            if graph_task is not None:
                self.emit.failed(graph_task, error)
            raise
        with self._lock:
            self._unclaimed.append(observed)
        return observed

    @collecting_nothing()
    def _walk(self, graph_task: GraphTask, call: EngineCall) -> None:
        if len(call.tensors) != 1:
            graph_task.add(GraphRoot(_C._autograd._get_sequence_nr()))
        policy = real_device if torch.accelerator.is_available() else None
        edges = walk(graph_task, [*map(root_edge, call.tensors)], observed_node, policy)
        nodes = graph_task.nodes
        if self.registry.dependencies_computed or len(nodes) >= deep_graphs.DEEP:
            measure_paths(graph_task)
            deep_graphs.hold((ref for ref, _ in graph_task.root_edges), nodes)
        if self.registry.measurer is not None:
            graph_task.fan_in = list(graph_task.dependencies)
        if call.inputs:
            outputs = _find_inputs(graph_task, call.inputs)
            graph_task.init_to_execute(outputs, accumulate_grad=call.accumulate_grad)
        self.emit.dependencies(graph_task, edges)

    # -- passes ---------------------------------------------------------------------------------

    def claims(self, observed: ObservedPass, native_id: int, ref: NodeRef) -> bool:
        """Whether a graph task of torch, of which ``ref`` runs, is that of ``observed``.

        It is that of the call that this thread made last; on a device thread, where ``ref`` is a
        root of it, or no other call is at its beginning.
        """
        if observed.native_id != UNCLAIMED or native_id in self._passes:
            return False
        with self._lock:
            mine = [one for one in self._unclaimed if one.thread is current()]
            roots = [root for root, _ in observed.graph_task.root_edges]
            if mine[-1] is not observed if mine else len(self._unclaimed) > 1 and ref not in roots:
                return False
            self._no_longer_unclaimed(observed)
            observed.native_id = native_id
            self._passes[native_id] = observed
        return True

    def _under_way(self) -> ObservedPass | None:
        """The pass that a hook of the program, or a node, is called in on this thread."""
        native_id = _C._current_graph_task_id()
        found = self._passes.get(native_id)
        if found is not None or native_id == -1:
            return found
        node = _C._current_autograd_node()
        for one in reversed(self._unclaimed):
            ref = None if node is None else one.graph_task.find(node)
            if ref is not None and self.claims(one, native_id, ref):
                return one
        return None

    def announce(self, thread: EngineThread, ref: NodeRef) -> None:
        """A node starts on a thread that may be new to some instrument."""
        self.emit.thread("", ref.device)
        if ref.device != events.CPU_QUEUE:
            thread.inferred_queue = self.device_queue(ref.device)

    def device_queue(self, device: int) -> InferredQueue[GraphTask]:
        """The inferred ReadyQueue of a device."""
        with self._lock:
            queue = self._queues.get(device)
            if queue is None:
                queue = self._queues[device] = InferredQueue(device)
            return queue

    def device_queues(self) -> list[InferredQueue[GraphTask]]:
        """Those of all devices."""
        return list(self._queues.values())

    def _forget(self, observed: ObservedPass) -> None:
        observed.leave()
        with self._lock:
            self._passes = {nr: one for nr, one in self._passes.items() if one is not observed}
            self._no_longer_unclaimed(observed)
        observed.graph_task.release()

    def _no_longer_unclaimed(self, observed: ObservedPass) -> None:
        with contextlib.suppress(ValueError):  # a finalizer that ran meanwhile called backward
            self._unclaimed.remove(observed)


def _find_inputs(graph_task: GraphTask, inputs: Sequence[Any]) -> list[Edge | None]:
    """The nodes in the graph that ``inputs=`` name; None for those that are not in it."""
    by_node = {ref.node: ref for ref in graph_task.nodes}
    leaves = {id(ref.node.variable): ref for ref in graph_task.nodes if ref.is_accumulate_grad}
    found: list[Edge | None] = []
    for given in inputs:
        is_leaf = isinstance(given, Tensor) and given.grad_fn is None
        if is_leaf:
            ref, number = leaves.get(id(given)), 0
        else:
            node = given.node if isinstance(given, GradientEdge) else given.grad_fn
            ref, number = by_node.get(node), given.output_nr
        found.append(None if ref is None else (ref, number))
    return found


_replaced: list[Any] = []
"""What was in the place of the observer, for each :func:`install`."""


@functools.cache
def observing_engine() -> ObservingEngine:
    """The observer of this process, made when first asked for."""
    return ObservingEngine()


@contextlib.contextmanager
def observed(*instruments: Instrument, nonfinite_check: bool = False) -> Iterator[ObservingEngine]:
    """Let instruments observe the native engine for the length of a ``with`` block.

    Args:
        instruments: observers to add.
        nonfinite_check: look for NaN and Inf in every output; instruments observe what is found.
    """
    observing = observing_engine()
    before, observing.nonfinite_check = observing.nonfinite_check, nonfinite_check
    install(*instruments)
    try:
        yield observing
    finally:
        uninstall(*instruments)
        observing.nonfinite_check = before


def install(*instruments: Instrument) -> None:
    """Observe the native engine, in all threads, until as many calls of :func:`uninstall`."""
    observing = observing_engine()
    for instrument in instruments:
        observing.registry.add(instrument)
    _replaced.append(Variable._execution_engine)
    Variable._execution_engine = observing


def uninstall(*instruments: Instrument) -> None:
    """Undo one :func:`install`; the last one takes all instruments out."""
    observing = observing_engine()
    for instrument in instruments:
        observing.registry.remove(instrument)
    if _replaced:
        Variable._execution_engine = _replaced.pop()
    if not _replaced:
        for instrument in observing.registry.instruments:
            observing.registry.remove(instrument)
