"""The engine: ``execute`` -> ``thread_main`` -> ``evaluate_function`` -> ``call_function``.

The methods follow torch's ``engine.cpp`` one by one, under its names and in its order. What they
emit is beside what they do, and is emitted after the engine's locks are released.

Note [Reentrant backwards]
~~~~~~~~~~~~~~~~~~~~~~~~~~
A backward called from inside a node runs on the same thread and shares its ReadyQueue; its tasks
go first because they are deeper. Torch moves to a thread of its pool at 60 nested calls; ours
takes several Python frames and two native graph tasks for each level, and moves at
:data:`MAX_DEPTH`. The thread that moves waits for the one that takes its place.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import torch
from torch import is_grad_enabled
from torch.autograd import profiler

from agviz_engine import (
    accumulate_grad,
    anomaly,
    deep_graphs,
    function_hook,
    interrupt,
    native_run,
)
from agviz_engine.device_policy import DevicePolicy, real_device
from agviz_engine.device_threads import DeviceThreads, ReentrantPool, set_device
from agviz_engine.emissions import (
    ABSENT,
    ARRIVED,
    DELIVERED,
    ENDED,
    LEAF,
    RELEASED,
    clock,
    expand,
    next_seq,
)
from agviz_engine.emit import Emitter
from agviz_engine.events import CPU_QUEUE
from agviz_engine.graph_task import Edge, GraphRoot, GraphTask
from agviz_engine.graph_walk import walk
from agviz_engine.input_buffer import accumulate, held_bytes
from agviz_engine.instruments import Live, Registry, own_packages
from agviz_engine.located_node import node_ref
from agviz_engine.nonfinite_check import check_outputs
from agviz_engine.ready_queue import NodeTask, ReadyQueue
from agviz_engine.rewind import GoBack, Rewind, leave_again
from agviz_engine.streams import GraphStreams, device_stream
from agviz_engine.thread_local_state import ThreadLocalState
from agviz_engine.thread_state import (
    FINAL_CALLBACK,
    LEAVING,
    NO_DEVICE,
    NODE,
    STAND_IN,
    EngineThread,
    current,
    program_ran,
    waiting_for_task,
)
from agviz_engine.torch_layout import had_hooks, had_post_hooks
from agviz_engine.torch_modes import inplace_hint, legacy_vmap_level
from agviz_engine.validate_outputs import validate_outputs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from torch import Tensor
    from torch.autograd.graph import Node

    from agviz_engine.input_buffer import InputBuffer
    from agviz_engine.node import NodeRef

_C = cast("Any", torch._C)
MAX_DEPTH = 28
"""Nested hosts on one thread before another thread takes over (torch's ``MAX_DEPTH``: 60).

A host and a one-node run in it are two native levels: at 60 torch would change threads itself.
"""

_new = object.__new__
_NOTHING = contextlib.nullcontext()
_set_grad_enabled = _C._set_grad_enabled
_profiler_enabled = _C._autograd._profiler_enabled
_HELD_BY_EVALUATE = 2
"""Holders of an output in ``evaluate_function``: the tuple of outputs and a variable."""
_EVALUATE_FUNCTION = "autograd::engine::evaluate_function: "
"""Begins the name of a node's record in torch's profiler."""

Gradients: TypeAlias = "tuple[Tensor | None, ...]"
_Delivered: TypeAlias = "tuple[tuple[int, ...], Tensor | None]"
"""Row of a delivery, and what the slot to which it leads holds since then."""
_Met: TypeAlias = "tuple[tuple[int, ...], NodeRef, Tensor]"
"""Row of a delivery, consumer, and the sum in its slot."""


def _record_of(ref: NodeRef) -> contextlib.AbstractContextManager[Any]:
    """What puts a node into the trace of torch's profiler, where this thread is in one."""
    if not _profiler_enabled() or ref.is_custom_function:
        return _NOTHING
    record: contextlib.AbstractContextManager[Any] = _C._profiler._RecordFunctionFast(
        _EVALUATE_FUNCTION + ref.name
    )
    return record


class Engine:
    """Runs graph tasks. One per process; ``registry`` holds the instruments."""

    def __init__(self) -> None:
        inplace_hint()  # made now, so that no graph is made while the program's runs
        self.registry = Registry()
        self.emit = Emitter(self.registry)
        self.device_policy: DevicePolicy = real_device
        self.nonfinite_check = False
        self.rewind: Rewind | None = None
        """Keeps what passes need to go back; None: they can't."""
        self.activity = accumulate_grad.Activity()
        self.device_threads = DeviceThreads(self._device_thread_main)
        self.reentrant_pool = ReentrantPool()

    # -- one call of backward or grad -----------------------------------------------------------

    def execute(
        self,
        roots: Sequence[tuple[Node, int]],
        gradients: Sequence[Tensor],
        *,
        keep_graph: bool,
        create_graph: bool,
        accumulate_grad: bool,
        inputs: Callable[[GraphTask], Sequence[Edge | None]] | None,
        number_of_inputs: int = 0,
        min_topological_nr: int = 0,
        tensors: Sequence[object] = (),
    ) -> list[Tensor | None]:
        """Run one backward pass (``Engine::execute``).

        Args:
            roots: node and output number for each tensor that is differentiated.
            gradients: the gradient of each root.
            keep_graph: ``retain_graph``.
            create_graph: whether gradients get a graph of their own.
            accumulate_grad: True for ``backward``, False for ``grad``.
            inputs: finds the nodes of ``inputs=`` once the graph is known, or None.
            number_of_inputs: how many it will find, for the event.
            min_topological_nr: the smallest topological number among them, at which the walk over
                the graph may stop (``compute_min_topological_nr``).
            tensors: what ``backward`` or ``grad`` was called on, for instruments.

        Returns:
            The captured gradients of ``grad``, None where an input was not reached.

        Raises:
            BaseException: whatever a node, a hook or a check raised, unchanged.
        """
        self.emit.thread("", CPU_QUEUE)
        program_ran()
        if create_graph:
            native_run.create_graph_warning()  # said now, so that one-node runs do not say it
        reentrant = current().worker_device != NO_DEVICE
        graph_task = GraphTask(
            keep_graph=keep_graph,
            create_graph=create_graph,
            accumulate_grad=accumulate_grad,
            reentrant_depth=current().total_depth + 1 if reentrant else 0,
            cpu_ready_queue=current().local_ready_queue,
            thread_locals=ThreadLocalState(grad_mode=create_graph),
        )
        graph_task.min_topological_nr = min_topological_nr
        graph_task.root_tensors = tensors
        enclosing, node = current().current_graph_task, current().current_node
        if enclosing is not None and node is not None:
            graph_task.parent = enclosing.id
            graph_task.parent_node = node.index
            if enclosing.history is not None:
                enclosing.history.note("began a backward pass inside")
        try:
            self.emit.begun(graph_task, len(roots), number_of_inputs)
            self._prepare(graph_task, roots, gradients, inputs)
            if self.rewind is not None:
                graph_task.history = self.rewind.begin(graph_task, number_of_inputs)
            self.execute_with_graph_task(graph_task)
            anomaly.warn_beside_an_error(graph_task.stacks)
            _raise_error_of(graph_task)
        except BaseException as error:
            self.emit.failed(graph_task, error)
            raise
        else:
            self.emit.finished(graph_task)
            return graph_task.captured_vars
        finally:
            current().live = None
            if enclosing is None:
                current().failing = None
            if graph_task.history is not None:
                graph_task.history.end()
                graph_task.history = None
            graph_task.release()
            del graph_task  # the frame may live on in the traceback of an exception

    def _prepare(
        self,
        graph_task: GraphTask,
        roots: Sequence[tuple[Node, int]],
        gradients: Sequence[Tensor],
        inputs: Callable[[GraphTask], Sequence[Edge | None]] | None,
    ) -> None:
        self.compute_dependencies(graph_task, roots)
        checked = validate_outputs(graph_task.root_edges, tuple(gradients), str)
        graph_task.root_gradients = cast("tuple[Tensor, ...]", checked)
        root = graph_task.nodes[0]
        if isinstance(root, GraphRoot):
            root.hand_out(checked)
        if inputs is not None:
            outputs = inputs(graph_task)
            graph_task.init_to_execute(outputs, accumulate_grad=graph_task.accumulate_grad)
            graph_task.output_edges = [(edge[0].node, edge[1]) for edge in outputs if edge]
            graph_task.host_gradients = graph_task.root_gradients
            if graph_task.threaded:
                graph_task.host_gradients = native_run.apart(graph_task.root_gradients)

    def compute_dependencies(
        self, graph_task: GraphTask, roots: Sequence[tuple[Node, int]]
    ) -> None:
        """Walk the graph and count how many edges lead to each node (``compute_dependencies``).

        Afterwards the graph task has its ``nodes``, ``dependencies`` and ``root_edges``.
        """
        deep_graphs.let_go()
        if len(roots) != 1:
            graph_task.add(GraphRoot(_C._autograd._get_sequence_nr()))
        edges = walk(graph_task, roots, node_ref, self._policy())
        if torch.accelerator.is_available() and any(map(device_stream, graph_task.nodes)):
            graph_task.streams = GraphStreams()
        deep_graphs.hold((ref for ref, _ in graph_task.root_edges), graph_task.nodes)
        if self.registry.measurer is not None:
            graph_task.fan_in = list(graph_task.dependencies)
        self.emit.dependencies(graph_task, edges)

    def _policy(self) -> DevicePolicy | None:
        """How nodes get to device threads, or None where all stay on the calling thread."""
        if self.rewind is not None:
            return None  # Note [Going back]
        if not _C._is_multithreading_enabled() or _C._are_functorch_transforms_active():
            return None  # functorch's levels can't be carried to another thread
        if self.device_policy is real_device and not torch.accelerator.is_available():
            return None
        return self.device_policy

    def execute_with_graph_task(self, graph_task: GraphTask) -> None:
        """Queue the root and drive the graph task to its end (``execute_with_graph_task``)."""
        root = graph_task.nodes[0]
        buffer: InputBuffer = [None] * root.num_inputs
        if not isinstance(root, GraphRoot):
            slot, gradient = graph_task.root_edges[0][1], graph_task.root_gradients[0]
            buffer[slot] = gradient
            if graph_task.streams is not None:
                graph_task.streams.begin(root, slot, gradient)
            self._root_gradient(graph_task, root, slot, gradient)
        if current().worker_device == NO_DEVICE:
            current().worker_device = graph_task.owner = CPU_QUEUE
            try:
                self._push_root(graph_task, root, buffer)
                with self.activity.one_more():
                    self._drive(graph_task)
            finally:
                current().worker_device = NO_DEVICE
            return
        graph_task.owner = current().worker_device
        self._push_root(graph_task, root, buffer)
        if current().hosts >= MAX_DEPTH:
            self._drive_in_pool(graph_task)
            return
        current().total_depth += 1
        try:
            if self.device_threads.started:
                with self.activity.one_more():
                    self._drive(graph_task)
            else:
                self._drive(graph_task)
        finally:
            current().total_depth -= 1

    def _root_gradient(
        self, graph_task: GraphTask, root: NodeRef, slot: int, gradient: Tensor
    ) -> None:
        """Emit that the caller's gradient of a single root arrived in its buffer."""
        measurer = self.registry.measurer
        if self.registry.deliveries:
            fact = -1, slot, 0, held_bytes(gradient)
            row = self.emit.row(graph_task, ARRIVED, root, *fact)
            if measurer is not None:
                measurer.given(graph_task, root, gradient, row, root)
            self.emit.dispatch(graph_task, root, row, gradient)

    def _push_root(self, graph_task: GraphTask, root: NodeRef, buffer: InputBuffer) -> None:
        try:
            self._push(current(), graph_task, NodeTask(graph_task, root, buffer))
        except BaseException:  # an instrument was interrupted
            self._leave(graph_task)
            raise

    def _drive(self, graph_task: GraphTask) -> None:
        try:
            self._host(graph_task, lambda: self.thread_main(graph_task))
        finally:
            self._leave(graph_task)

    def _leave(self, graph_task: GraphTask) -> None:
        """See that nobody works on ``graph_task`` any more, and no task of it is left behind."""
        with graph_task.mutex:
            if not graph_task.future_completed:  # interrupted outside any node
                graph_task.has_error = graph_task.future_completed = True
        self._wait_for_hosts(graph_task)
        if graph_task.has_error or graph_task.threaded:  # a wake-up can come too late to be popped
            graph_task.cpu_ready_queue.discard(graph_task)

    def _drive_in_pool(self, graph_task: GraphTask) -> None:
        """Let a thread of the pool work off this thread's queue (``add_thread_pool_task``)."""
        depth = graph_task.reentrant_depth
        self._in_pool(depth, lambda: self._drive(graph_task))

    def _in_pool(self, depth: int, work: Callable[[], None]) -> None:
        """Run ``work`` on a thread in place of this one, which waits.

        Raises:
            BaseException: what ``work`` raised.
        """
        thread = current()
        queue, device = thread.local_ready_queue, thread.worker_device
        checkpoint_valid = thread.checkpoint_valid
        thread_locals = ThreadLocalState(grad_mode=torch.is_grad_enabled())

        def reentrant_thread_init() -> None:
            stand_in = current()
            self.emit.thread("", queue.index)
            stand_in.local_ready_queue, stand_in.worker_device = queue, device
            stand_in.total_depth, stand_in.checkpoint_valid = depth, checkpoint_valid
            try:
                with thread_locals.restored():
                    work()
            finally:
                stand_in.local_ready_queue = ReadyQueue(CPU_QUEUE)
                stand_in.worker_device = NO_DEVICE
                stand_in.total_depth, stand_in.checkpoint_valid = 0, True
                stand_in.live = stand_in.failing = None

        doing = thread.enter(STAND_IN)
        self.reentrant_pool.run(reentrant_thread_init)
        thread.doing = doing

    def _host(self, graph_task: GraphTask, body: Callable[[], None]) -> None:
        """Run ``body``, which must not raise, in a native graph task in place of ours.

        The thread-locals set for it are torch's ``GraphTaskGuard`` and ``CheckpointValidGuard``,
        and the restoring half of its ``NodeGuard``.
        """
        thread = current()

        def guarded() -> None:
            last = thread.current_graph_task, thread.current_node
            outer = thread.outer_checkpoint_valid
            doing = thread.doing, thread.around
            thread.around = thread.doing
            thread.current_graph_task = graph_task
            valid = thread.outer_checkpoint_valid = thread.checkpoint_valid
            thread.checkpoint_valid = graph_task.can_checkpoint() and valid
            try:
                body()
            finally:
                thread.current_graph_task, thread.current_node = last
                thread.checkpoint_valid, thread.outer_checkpoint_valid = valid, outer
                thread.doing, thread.around = doing

        thread.hosts += 1
        try:
            if graph_task.output_edges:
                roots = [(ref.node, nr) for ref, nr in graph_task.root_edges]
                native_run.host(
                    guarded,
                    roots,
                    graph_task.host_gradients,
                    graph_task.output_edges,
                    graph_task.mutex,
                )
            else:
                native_run.host(guarded)
        finally:
            thread.hosts -= 1

    # -- threads --------------------------------------------------------------------------------

    def thread_main(self, graph_task: GraphTask) -> None:
        """Work off this thread's queue until ``graph_task`` is complete (``Engine::thread_main``).

        For the thread that called backward and for reentrant calls on any thread. It runs inside
        the host of ``graph_task`` and must not raise. A task of another graph task, which can turn
        up where device threads and reentrant calls meet, gets a host of its own.
        """
        thread, registry = current(), self.registry
        queue = thread.local_ready_queue
        while not graph_task.future_completed:
            if registry.takes:
                task = queue.pop_observed(thread.thread_id, waiting_for_task)
            else:
                task = queue.pop(waiting_for_task)
            base = task.base
            if base is graph_task:
                self._work(thread, task, graph_task)
            elif base is not None and not base.future_completed:
                self._work_as_guest(thread, task, base)

    def _work_as_guest(
        self, thread: EngineThread, task: NodeTask[GraphTask], graph_task: GraphTask
    ) -> None:
        def work() -> None:
            self._host(graph_task, lambda: self._work(current(), task, graph_task))

        if thread.hosts >= MAX_DEPTH:
            self._in_pool(thread.total_depth, work)
        else:
            work()

    def _device_thread_main(self, queue: ReadyQueue[GraphTask], name: str) -> None:
        """The life of a device thread (``thread_init`` and ``thread_main`` without graph task).

        It stays in the host of a graph task for as long as that task's nodes come.
        """
        self.emit.thread(name, queue.index)
        current().local_ready_queue = queue
        current().worker_device = queue.index
        set_device(queue.index)
        following = [self._pop(queue)]
        while not following[0].is_shutdown_task:
            following.append(self._stay_in_host(queue, following.pop()))
        self.emit.worker_stopped()

    def _stay_in_host(
        self, queue: ReadyQueue[GraphTask], task: NodeTask[GraphTask]
    ) -> NodeTask[GraphTask]:
        """Work off ``task`` and what follows of its graph task; give back the first that isn't."""
        base = cast("GraphTask", task.base)
        self.emit.thread("", queue.index)
        with base.mutex:
            completed = base.future_completed
            if not completed:
                base.hosting.add(queue.index)
        if completed:
            del task
            return self._pop(queue)
        following = [task]
        del task  # the caller of backward must not find nodes alive when it returns
        thread = current()

        def body() -> None:
            with cast("ThreadLocalState", base.thread_locals).restored():
                while following[0].base is base:
                    self._work(thread, following[0], base)
                    if base.future_completed:
                        following.clear()
                        return
                    following[0] = self._pop(queue)

        try:
            self._host(base, body)
        finally:
            thread.live = thread.current_node = thread.failing = None
            with base.mutex:
                base.hosting.discard(queue.index)
                base.left_hosts.notify_all()
        return following.pop() if following else self._pop(queue)

    def _wait_for_hosts(self, graph_task: GraphTask) -> None:
        """Wake the device threads that wait in a host of ``graph_task``, until all have left it."""
        with graph_task.mutex:
            hosting = sorted(graph_task.hosting - {current().worker_device})
        for index in hosting:
            self._wake(graph_task, index)
        thread = current()
        doing = thread.enter(LEAVING)
        with graph_task.mutex:
            graph_task.left_hosts.wait_for(
                lambda: not graph_task.hosting - {current().worker_device}
            )
        thread.doing = doing

    def _work(  # noqa: C901, PLR0912 - calls for each node would cost more than what they do
        self, thread: EngineThread, task: NodeTask[GraphTask], graph_task: GraphTask
    ) -> None:
        """One turn of the loop in ``Engine::thread_main``. Does not raise."""
        ref = task.node
        if ref is None:  # it was to wake this thread
            if graph_task.history is not None and graph_task.history.wanted is not None:
                self._run_again(thread, graph_task)
            return
        if graph_task.has_error:
            task.inputs = None
            self.emit.skipped(graph_task, ref, task.row)
            return
        thread.current_node = ref
        thread.doing = thread.around, NODE, graph_task, ref, None
        if is_grad_enabled() is not graph_task.create_graph:
            _set_grad_enabled(graph_task.create_graph)
        try:
            if graph_task.history is not None:
                graph_task.history.keep(thread.local_ready_queue, task)
            if thread.interrupts:
                interrupt.strike(thread)
            if graph_task.streams is not None:
                self._evaluate_on_stream(thread, graph_task, graph_task.streams, ref, task)
            elif profiler._is_profiler_enabled:
                with _record_of(ref):
                    self.evaluate_function(thread, graph_task, ref, task)
            else:
                self.evaluate_function(thread, graph_task, ref, task)
        except BaseException as error:  # noqa: BLE001 - it is raised again in execute
            if not self._goes_back(thread, graph_task, error):
                self._fail(thread, graph_task, ref, task, error)
            thread.doing = thread.around
            return
        thread.doing = thread.around
        if graph_task.threaded:
            is_last = graph_task.decrement_outstanding_tasks()
        else:
            graph_task.outstanding_tasks -= 1
            is_last = not graph_task.outstanding_tasks
        if is_last:
            self.mark_as_completed_and_run_post_processing(graph_task)

    def _fail(
        self,
        thread: EngineThread,
        graph_task: GraphTask,
        ref: NodeRef,
        task: NodeTask[GraphTask],
        error: BaseException,
    ) -> None:
        """A node or one of its hooks raised."""
        try:
            if task.row is not None:  # interrupted before the node was taken up
                row, task.row = task.row, None
                inputs, task.inputs = tuple(task.inputs or ()), None
                self.emit.took(graph_task, ref, row, inputs)
            thread.failed(error)
            self.thread_on_exception(graph_task, ref, error)
        except GoBack as wanted:  # by an instrument that observes the failure
            if not self._goes_back(thread, graph_task, wanted):
                raise

    def _goes_back(self, thread: EngineThread, graph_task: GraphTask, error: BaseException) -> bool:
        """Whether an instrument wants the pass to go back; then this thread is woken to do so."""
        if not (isinstance(error, GoBack) and error.graph_task is graph_task):
            return False
        graph_task.history.wanted = error
        graph_task.has_error = graph_task.future_completed = False
        graph_task.error = None
        graph_task.stacks = []
        thread.live = thread.failing = None
        thread.local_ready_queue.wake_before_all(graph_task)
        return True

    def _run_again(self, thread: EngineThread, graph_task: GraphTask) -> None:
        """Undo what is to be undone and run the chosen node, see Note [Going back]."""
        history, queue = graph_task.history, thread.local_ready_queue
        wanted = history.wanted
        task = history.restore(queue)
        try:
            self._emit_again(graph_task, task.node, wanted)
        except BaseException as error:  # noqa: BLE001 - an instrument was interrupted
            self.thread_on_exception(graph_task, task.node, error)
            return
        if self.registry.takes:
            leave_again(queue, task, thread.thread_id)
        self._work(thread, task, graph_task)

    def _emit_again(self, graph_task: GraphTask, ref: NodeRef, wanted: GoBack) -> None:
        """End the recording of the first run, and begin that of the second with what it has."""
        history = graph_task.history
        self.emit.failed(graph_task, wanted)
        before = graph_task.renew()
        if history.tape is not None:
            history.tape.begin(graph_task.id)
        self.emit.begun(graph_task, len(graph_task.root_edges), history.number_of_inputs)
        now, graph_task.dependencies = graph_task.dependencies, history.first_dependencies()
        try:
            edges = [edge for each in graph_task.nodes for edge in each.next_edges if edge]
            roots = len(graph_task.root_edges) if graph_task.nodes[0].is_graph_root else 0
            self.emit.dependencies(graph_task, len(edges) - roots)
        finally:
            graph_task.dependencies = now
        if history.tape is not None:
            live = self.emit.live(graph_task)
            taped = history.taped
            history.tape.replay(before, graph_task.id, taped, self.registry, live)
        self.emit.intervened(graph_task, ref, "back", before)

    def _evaluate_on_stream(
        self,
        thread: EngineThread,
        graph_task: GraphTask,
        streams: GraphStreams,
        ref: NodeRef,
        task: NodeTask[GraphTask],
    ) -> None:
        """Run a node on the stream of its forward, where it has one."""
        stream = streams.of(ref)
        profiled = _record_of(ref) if profiler._is_profiler_enabled else _NOTHING
        if stream is None:
            with profiled:
                self.evaluate_function(thread, graph_task, ref, task)
            return
        with cast("Any", stream), profiled:
            streams.wait(ref, stream, task.inputs or [])
            self.evaluate_function(thread, graph_task, ref, task)
        captured = graph_task.exec_info is not None and graph_task.exec_info[ref.index].captures
        if captured or not ref.next_edges:
            with graph_task.mutex:
                streams.reached_leaf(stream)

    def thread_on_exception(
        self, graph_task: GraphTask, ref: NodeRef, error: BaseException
    ) -> None:
        """Make ``error`` the outcome of the graph task (``Engine::thread_on_exception``)."""
        error.__traceback__ = _without_engine_frames(error.__traceback__)
        anomaly.hide_mode(error)
        first = graph_task.set_exception(error)
        try:
            self.emit.node_failed(current(), graph_task, ref, error)
            warned = native_run.warned_of(error)
            if first and torch.is_anomaly_enabled() and not warned:
                try:
                    graph_task.stacks = anomaly.forward_stacks(ref)
                except RuntimeError as gone:  # a node in whose backward it was made
                    graph_task.error = gone
        finally:
            self._complete(graph_task)

    def mark_as_completed_and_run_post_processing(self, graph_task: GraphTask) -> None:
        """End the graph task on the thread that did its last node, and wake its owner."""
        try:
            self.exec_post_processing(graph_task)
        except BaseException as error:  # noqa: BLE001 - it is raised again in execute
            current().failed(error)
            error.__traceback__ = _without_engine_frames(error.__traceback__)
            graph_task.set_exception(error)
        self._complete(graph_task)

    def _complete(self, graph_task: GraphTask) -> None:
        with graph_task.mutex:
            graph_task.future_completed = True
        if current().worker_device != graph_task.owner:
            self._wake(graph_task, graph_task.owner)

    def _wake(self, graph_task: GraphTask, device: int) -> None:
        """Push a task without a node, which makes the thread look whether it is done."""
        self.ready_queue(graph_task, device).push(NodeTask(graph_task, None, None))

    def exec_post_processing(self, graph_task: GraphTask) -> None:
        """Run the final callbacks, those included that they add (``exec_post_processing``).

        Raises:
            RuntimeError: a node that was begun never got all its gradients, or a callback raised.
        """
        if graph_task.not_ready:
            raise RuntimeError("could not compute gradients for some functions")
        if graph_task.streams is not None:
            graph_task.streams.finish()
        thread = current()
        last = thread.current_graph_task, thread.current_node
        thread.current_graph_task, thread.current_node = graph_task, None
        streams: contextlib.AbstractContextManager[Any] = _NOTHING
        if graph_task.streams is not None and graph_task.final_callbacks:
            streams = graph_task.streams.of_caller()
        try:
            with streams, thread.outside_call_function():
                index = 0
                while index < len(graph_task.final_callbacks):
                    began = clock()
                    _set_grad_enabled(graph_task.create_graph)
                    callback = graph_task.final_callbacks[index]
                    around = thread.around
                    thread.doing = around, FINAL_CALLBACK, graph_task, None, callback
                    callback()
                    thread.doing = around
                    self.emit.callback_run(graph_task, index, began)
                    index += 1
        finally:
            thread.current_graph_task, thread.current_node = last

    # -- one node -------------------------------------------------------------------------------

    def evaluate_function(  # noqa: C901, PLR0912, PLR0915 - as long as torch's own
        self, thread: EngineThread, graph_task: GraphTask, ref: NodeRef, task: NodeTask[GraphTask]
    ) -> None:
        """Run the node of a task and hand its outputs on (``Engine::evaluate_function``).

        One function, because calls for each node and gradient would cost more than what they do:
        cut into eight, it took small models 7 to 10 % longer.
        """
        registry = self.registry
        hidden: function_hook.HiddenHooks | None = None
        inputs: Gradients = ()
        buffer, task.inputs = task.inputs, None
        if buffer:
            inputs = tuple(buffer)
            buffer.clear()
        row = task.row
        if row is not None:
            task.row = None
            if registry.takes_dispatched:
                live = self.emit.took(graph_task, ref, row, inputs)
                if live is not None:
                    inputs, hidden = self._steered(graph_task, ref, live)
            elif registry.journal is not None:
                registry.journal(row)
        try:
            if graph_task.exec_info is not None and not self._capture(graph_task, ref, inputs):
                return
            outputs = self.call_function(graph_task, ref, inputs)
        finally:
            if hidden is not None:
                hidden.restore()
        del inputs
        graph_task.executed += 1
        measurer = registry.measurer
        sizes: Sequence[int] | None = None
        measuring = 0
        if measurer is not None:
            if outputs:  # while the node has what it saved
                came = clock()
                sizes = measurer.outputs(graph_task, ref, outputs, came)
                measuring = clock() - came
        elif self.nonfinite_check and registry.checks:
            check_outputs(self.emit, graph_task, ref, outputs)
        released = ref.saves_tensors and not graph_task.keep_graph
        if released:
            if graph_task.history is None:
                ref.release_variables()
            else:
                graph_task.history.release(ref)
        if outputs and _C.is_anomaly_enabled():
            self._check_anomaly(graph_task, ref, outputs, released=released)
        journal, now = registry.journal, 0
        if registry.ends or registry.deliveries:
            now = clock() - measuring
        if registry.ends:
            row = (
                next_seq(),
                now,
                thread.thread_id,
                graph_task.id,
                ENDED,
                ref.index,
                len(outputs),
                1 if released else 0,
                ABSENT,
                ABSENT,
                ABSENT,
            )
            if journal is not None:
                journal(row)
            if registry.ends_dispatched:
                self.emit.ended(graph_task, ref, row, outputs)
                journal = registry.journal  # an instrument may have ended a recording
        if not outputs:
            return
        is_emitted = registry.deliveries
        delivered: list[_Delivered] | None = [] if registry.deliveries_dispatched else None
        delivery: tuple[int, ...] = ()
        met: list[_Met] | None = None
        ready: list[NodeTask[GraphTask]] = []
        dependencies, not_ready = graph_task.dependencies, graph_task.not_ready
        exec_info, streams = graph_task.exec_info, graph_task.streams
        mutex = graph_task.mutex if graph_task.threaded else None
        if mutex is not None:
            mutex.acquire()
        try:
            for i, edge in enumerate(ref.next_edges):
                if edge is None:
                    continue
                consumer, slot = edge
                output: Any = outputs[i]
                index = consumer.index
                remaining = dependencies[index] = dependencies[index] - 1
                buffer = not_ready.get(index)
                is_wanted = True
                if buffer is None:
                    is_wanted = exec_info is None or exec_info[index].should_execute()
                    buffer = [None] * consumer.num_inputs
                    if remaining and is_wanted:
                        not_ready[index] = buffer
                elif not remaining:
                    del not_ready[index]
                added, nbytes = 0, -1
                try:
                    if output is not None and is_wanted:
                        if buffer[slot] is None:
                            buffer[slot] = output
                            if streams is not None:
                                streams.first(ref, consumer, slot, output)
                        else:
                            added = 1
                            if streams is None:
                                accumulate(buffer, slot, output, _HELD_BY_EVALUATE)
                            else:
                                with streams.before_sum(ref, consumer, slot, buffer[slot], output):
                                    accumulate(buffer, slot, output, _HELD_BY_EVALUATE)
                                streams.after_sum(consumer, slot)
                            if graph_task.create_graph and _C.is_anomaly_enabled():
                                anomaly.assign_parent(ref, buffer)
                        if is_emitted:
                            if added:
                                output = buffer[slot]
                                now = clock()
                            elif sizes is not None:
                                nbytes = sizes[i]
                            if nbytes < 0:
                                nbytes = held_bytes(output)
                finally:  # also where gradients can't be added
                    if is_emitted:
                        delivery = (
                            next_seq(),
                            now,
                            thread.thread_id,
                            graph_task.id,
                            DELIVERED,
                            index,
                            ref.index,
                            remaining,
                            slot,
                            added,
                            nbytes,
                        )
                        if journal is not None:
                            journal(delivery)
                        if delivered is not None:
                            delivered.append((delivery, buffer[slot] if nbytes >= 0 else None))
                if added and measurer is not None and not (consumer.num_inputs == 1 and remaining):
                    met = met or []
                    met.append((delivery, consumer, cast("Tensor", buffer[slot])))
                if is_wanted and not remaining:
                    task = _new(NodeTask)  # at half the price of its __init__
                    task.base = graph_task
                    task.node = consumer
                    task.inputs = buffer
                    task.row = None
                    ready.append(task)
        finally:
            if mutex is not None:
                mutex.release()
            if delivered is not None:
                for delivery, gradient in delivered:
                    self.emit.dispatch(graph_task, ref, delivery, gradient)
        if met is not None and measurer is not None:
            for delivery, consumer, gradient in met:
                measurer.given(graph_task, ref, gradient, delivery, consumer)
        for task in ready:
            self._push(thread, graph_task, task)

    def _steered(
        self, graph_task: GraphTask, ref: NodeRef, live: Live
    ) -> tuple[Gradients, function_hook.HiddenHooks | None]:
        """Do what instruments asked for before a node runs, and take it off the live view."""
        inputs, skips_hooks = tuple(live.inputs), live.skips_hooks
        slots = live.replaced_slots()
        live.replaced.clear()
        live.skips_hooks = False
        for slot in slots:
            gradient = inputs[slot]
            event = self.emit.intervened(graph_task, ref, "gradient", slot, gradient)
            measurer = self.registry.measurer
            if measurer is not None and gradient is not None:
                measurer.replaced(graph_task, ref, gradient, event)
        if not skips_hooks:
            return inputs, None
        self.emit.intervened(graph_task, ref, "hooks")
        return inputs, function_hook.HiddenHooks(ref)

    def _check_anomaly(
        self, graph_task: GraphTask, ref: NodeRef, outputs: Gradients, *, released: bool
    ) -> None:
        if _C.is_anomaly_check_nan_enabled():
            try:
                anomaly.check_nan(ref, outputs)
            except BaseException:
                if released:
                    self._released(graph_task, ref)
                raise
        if graph_task.create_graph:
            anomaly.assign_parent(ref, outputs)

    def _released(self, graph_task: GraphTask, ref: NodeRef) -> None:
        """Emit that a node dropped what it had saved, though it fails before it ends."""
        if self.registry.ends:
            self.emit.dispatch(graph_task, ref, self.emit.row(graph_task, RELEASED, ref))

    def _capture(self, graph_task: GraphTask, ref: NodeRef, inputs: Gradients) -> bool:
        """Take what ``grad()`` wants of the incoming gradients.

        Returns:
            Whether the node has to run.
        """
        info = cast("Any", graph_task.exec_info)[ref.index]
        if not info.needed:
            report = self._hook_report(graph_task, ref)
            with current().outside_call_function():
                inputs = self._call_tensor_pre_hooks(graph_task, ref, inputs, report)
        for capture in info.captures:
            with graph_task.mutex:
                graph_task.captured_vars[capture.output_idx] = inputs[capture.input_idx]
            measurer = self.registry.measurer if self._may_differ(graph_task, ref) else None
            if self.registry.gradient_captured or measurer is not None:
                event = self.emit.captured(graph_task, ref, capture)
                gradient = inputs[capture.input_idx]
                if measurer is not None and gradient is not None:
                    measurer.result(graph_task, ref, gradient, event)
        if not info.needed:
            self.emit.node_skipped(graph_task, ref, "captured")
        return bool(info.needed)

    def _may_differ(self, graph_task: GraphTask, ref: NodeRef) -> bool:
        """Whether what came in has to be measured: it may not be what some node put out."""
        return self.registry.measurer is not None and (
            graph_task.may_sum(ref)
            or function_hook.has_tensor_pre_hooks(ref)
            or (ref.is_accumulate_grad and function_hook.leaf_has_hooks(ref, ref.node.variable))
        )

    def call_function(self, graph_task: GraphTask, ref: NodeRef, inputs: Gradients) -> Gradients:
        """Run a node with its hooks and check its outputs (``call_function``)."""
        if ref.is_accumulate_grad:
            return self._call_accumulate_grad(graph_task, ref, inputs)
        if ref.is_custom_function:
            return self._call_custom_function(graph_task, ref, inputs)
        base = ref.base
        if not base:
            return cast("Gradients", ref.node())
        pre, tensor_pre, retains_grad, had_post = had_hooks(base << 3)
        if tensor_pre or retains_grad:
            report = self._hook_report(graph_task, ref)
            inputs = self._call_tensor_pre_hooks(graph_task, ref, inputs, report)
            pre, _, _, had_post = had_hooks(base << 3)
        if pre:
            inputs = function_hook.call_hooks(
                ref, "pre", inputs, clock=clock, report=self._hook_report(graph_task, ref)
            )
            had_post = had_post_hooks[base]
        isolator = self.registry.isolator
        if isolator is None:
            result = ref.node(*inputs)
        else:
            given = inputs
            result = isolator.run(graph_task, ref, given, lambda: ref.node(*given))
        if type(result) is not tuple:
            result = (result,)
        result = validate_outputs(ref.next_edges, result, ref.returned_an)
        if had_post_hooks[base]:
            if not had_post:  # one came while the node ran: torch has let go of the inputs
                inputs = (None,) * len(inputs)
            report = self._hook_report(graph_task, ref)
            return function_hook.call_hooks(ref, "post", result, inputs, clock=clock, report=report)
        return result

    def _call_custom_function(
        self, graph_task: GraphTask, ref: NodeRef, inputs: Gradients
    ) -> Gradients:
        """Run a custom Function's node; torch runs its hooks and checks its outputs."""
        isolator = self.registry.isolator
        if isolator is None:
            return self._call_observed_function(graph_task, ref, inputs)
        outputs: Gradients = isolator.run(
            graph_task,
            ref,
            inputs,
            lambda: self._call_observed_function(graph_task, ref, inputs),
        )
        return outputs

    def _call_observed_function(
        self, graph_task: GraphTask, ref: NodeRef, inputs: Gradients
    ) -> Gradients:
        with self._hooks_observed(graph_task, ref):
            if not legacy_vmap_level() and any(g is not None for g in inputs):
                return self._run_node(graph_task, ref, inputs)
            inputs = self._call_tensor_pre_hooks(graph_task, ref, inputs, None)
            inputs = function_hook.call_hooks(ref, "pre", inputs, clock=clock, report=None)
            hidden = function_hook.HiddenHooks(ref, ("tensor_pre", "pre"))
            try:
                return self._run_node(graph_task, ref, inputs, hidden.restore)
            finally:
                hidden.restore()

    def _hooks_observed(
        self, graph_task: GraphTask, ref: NodeRef
    ) -> contextlib.AbstractContextManager[None]:
        report = self._hook_report(graph_task, ref)
        if report is None:
            return _NOTHING
        return function_hook.observed(
            ref,
            report=report,
            is_ours=lambda: current().current_graph_task is graph_task,
            clock=clock,
        )

    def _call_accumulate_grad(
        self, graph_task: GraphTask, ref: NodeRef, inputs: Gradients
    ) -> Gradients:
        """Run an AccumulateGrad with its hooks. It has no outputs."""
        node = ref.node
        variable = node.variable
        has_hooks = function_hook.leaf_has_hooks(ref, variable)
        measurer = self.registry.measurer
        if measurer is not None and not (
            has_hooks or variable.grad is not None or graph_task.may_sum(ref)
        ):
            measurer = None  # it is what a node put out, measured already
        create_graph = graph_task.create_graph
        if not has_hooks:
            if create_graph or not accumulate_grad.steal(variable, inputs, self.activity):
                node(*inputs)
        elif ref.has_native_hooks():  # torch runs all of them, with the node, in its own order
            self._run_accumulate_grad(graph_task, ref, inputs)
        else:
            report = self._hook_report(graph_task, ref)
            before = inputs
            inputs = self._call_tensor_pre_hooks(graph_task, ref, inputs, report)
            inputs = function_hook.call_hooks(ref, "pre", inputs, clock=clock, report=report)
            if not create_graph and accumulate_grad.steal(
                variable, inputs, self.activity, before_hooks=before
            ):
                function_hook.call_post_accumulate_grad_hooks(ref, clock=clock, report=report)
            else:
                given = inputs
                if not create_graph and had_post_hooks[ref.base]:
                    given = accumulate_grad.beside_post_hooks(inputs, before)
                with self._hooks_observed(graph_task, ref):
                    node(*given)
            function_hook.call_hooks(ref, "post", (), inputs, clock=clock, report=report)
        if self.registry.leaves or measurer is not None:
            row = self.emit.row(graph_task, LEAF, ref)
            gradient = None if measurer is None else variable.grad
            if measurer is not None and gradient is not None:
                measurer.result(graph_task, ref, gradient, expand(row)[0])
            if self.registry.leaf_accumulated:
                self.emit.dispatch(graph_task, ref, row)
        return ()

    def _run_accumulate_grad(self, graph_task: GraphTask, ref: NodeRef, inputs: Gradients) -> None:
        """Run an AccumulateGrad whose hooks torch calls."""
        with self._hooks_observed(graph_task, ref):
            if (
                graph_task.create_graph
                or _C.is_anomaly_enabled()
                or _C._autograd._profiler_enabled()
                or legacy_vmap_level()
                or not accumulate_grad.is_free(ref.node.variable, inputs)
                or not self._has_parent(graph_task, ref)
            ):
                self._run_node(graph_task, ref, inputs)
                return
            # What Python code DDP's reducer may call gets its buckets, whose memory no gradient of
            # a pass has: what was measured holds. 200 of 530 MB were measured twice without that.
            has_python_hooks = function_hook.has_python_hooks(ref)
            parent = graph_task.parents_of_leaves.pop(ref.index)
            native_run.run_leaf(ref, parent, inputs[0])
            if has_python_hooks:
                program_ran()

    def _has_parent(self, graph_task: GraphTask, ref: NodeRef) -> bool:
        """Whether there is a node that can give an AccumulateGrad a gradient to steal."""
        parents = graph_task.parents_of_leaves
        if ref.index not in parents:
            leaves = [
                each
                for each in graph_task.nodes
                if each.is_accumulate_grad
                and accumulate_grad.is_plain(each.node.variable)
                and each.has_native_hooks()
            ]
            parents.update(native_run.leaf_parents(leaves))
        return ref.index in parents

    def _hook_report(self, graph_task: GraphTask, ref: NodeRef) -> function_hook.HookReport | None:
        """What to call after each hook of ``ref``; None where nobody observes hooks."""
        if not self.registry.hook_called:
            return None

        def report(kind: str, name: str, began: int, given: Gradients, gave: Gradients) -> None:
            changed = gave is not given
            event = self.emit.hook_called(graph_task, ref, kind, name, began, changed=changed)
            measurer = self.registry.measurer
            if changed and measurer is not None:
                measurer.hook(graph_task, ref, event, given, gave)

        return report

    def _run_node(
        self,
        graph_task: GraphTask,
        ref: NodeRef,
        inputs: Gradients,
        begin: Callable[[], None] | None = None,
    ) -> Gradients:
        if _C.is_anomaly_enabled():
            anomaly.forget_engine_frames(ref)
        measurer = self.registry.measurer
        if not self.registry.saved_measured or ref.index in graph_task.nonfinite:
            measurer = None

        def look(outputs: Gradients) -> None:
            """Measure what a custom Function put out while it still has what it saved."""
            program_ran()
            if measurer is not None:
                measurer.look(graph_task, ref, outputs)

        outputs = native_run.run_node(
            ref,
            inputs,
            keep_graph=graph_task.keep_graph or graph_task.history is not None,
            create_graph=graph_task.create_graph,
            begin=begin,
            look=None if measurer is None else look,
        )
        if graph_task.history is not None and not (graph_task.keep_graph or ref.is_accumulate_grad):
            graph_task.history.release(ref)
        if ref.index not in graph_task.looked:
            program_ran()
        return outputs

    def _call_tensor_pre_hooks(
        self,
        graph_task: GraphTask,
        ref: NodeRef,
        inputs: Gradients,
        report: function_hook.HookReport | None,
    ) -> Gradients:
        if not ref.base:
            return inputs
        return function_hook.call_tensor_pre_hooks(
            ref,
            inputs,
            create_graph=graph_task.create_graph,
            clock=clock,
            report=report,
        )

    # -- queues ---------------------------------------------------------------------------------

    def run_next(self, graph_task: GraphTask, ref: NodeRef) -> bool:
        """Have a node's queue give it next, before all others; the order of these stays.

        Returns:
            Whether the node was waiting in its queue.
        """
        found = self.ready_queue(graph_task, ref.device).prefer(graph_task, ref)
        if found:
            self.emit.intervened(graph_task, ref, "next")
        return found

    def ready_queue(self, graph_task: GraphTask, device: int) -> ReadyQueue[GraphTask]:
        """The queue of device ``device``; -1 is the caller's (``Engine::ready_queue``)."""
        if device == CPU_QUEUE:
            return graph_task.cpu_ready_queue
        return self.device_threads.queue(device)

    def _push(self, thread: EngineThread, graph_task: GraphTask, task: NodeTask[GraphTask]) -> None:
        ref: Any = task.node
        if ref.device == CPU_QUEUE:
            queue = graph_task.cpu_ready_queue
        else:
            queue = self.device_threads.queue(ref.device)
        if graph_task.threaded:
            graph_task.increment_outstanding_tasks()
        else:
            graph_task.outstanding_tasks += 1
        registry = self.registry
        if not registry.pushes:
            queue.push(task)
            return
        row = queue.push_observed(task, thread.thread_id)
        if registry.journal is not None:
            registry.journal(row)
        if registry.queue_push:
            self.emit.dispatch(graph_task, ref, row)

    def _pop(self, queue: ReadyQueue[GraphTask]) -> NodeTask[GraphTask]:
        if self.registry.takes:
            return queue.pop_observed(current().thread_id, waiting_for_task)
        return queue.pop(waiting_for_task)


def _raise_error_of(graph_task: GraphTask) -> None:
    error, graph_task.error = graph_task.error, None
    if error is not None:
        try:
            raise error
        finally:
            del error  # or this frame, which the traceback keeps, would keep the exception


def _without_engine_frames(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback from the first frame that is not the engine's, as the native engine has it."""
    while traceback is not None and traceback.tb_frame.f_globals.get("__package__") in own_packages:
        traceback = traceback.tb_next
    return traceback
