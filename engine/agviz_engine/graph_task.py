"""GraphTask: one call of backward or grad while it runs (torch's ``graph_task.h``)."""

from __future__ import annotations

import heapq
import itertools
import threading
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch

from agviz_engine.node import NodeRef

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor
    from torch.autograd.graph import Node

    from agviz_engine.input_buffer import InputBuffer
    from agviz_engine.ready_queue import ReadyQueue
    from agviz_engine.streams import GraphStreams
    from agviz_engine.thread_local_state import ThreadLocalState

Edge = tuple[NodeRef, int]
_ORDER_NEEDS_ONE_THREAD = """\
get_current_graph_task_execution_order expects the current backward to be executed with \
multithreading disabled, e.g. by running:

>>> with torch.autograd.set_multithreading_enabled(False):
...     torch.autograd.grad(...)
"""
_next_id: Callable[[], int] = itertools.count().__next__


def left_out_id() -> int:
    """The id that a graph task would have had which is left out."""
    return _next_id()


class Capture(NamedTuple):
    """An incoming gradient that ``grad()`` returns (``ExecInfo::Capture``)."""

    input_idx: int
    output_idx: int


class ExecInfo:
    """Whether a node is needed in a graph task with ``inputs=`` (Note [Exec info] in torch)."""

    __slots__ = ("captures", "needed")

    def __init__(self) -> None:
        self.needed = False
        self.captures: list[Capture] = []

    def should_execute(self) -> bool:
        """Whether the node's gradient is wanted at all."""
        return self.needed or bool(self.captures)


class GraphRoot(NodeRef):
    """The node in front of several roots; its outputs are the caller's gradients.

    Torch makes one (``GraphRoot`` in ``basic_ops.h``) where backward gets more than one tensor.
    """

    __slots__ = ("_sequence_nr",)
    is_graph_root = True

    def __init__(self, sequence_nr: int) -> None:
        self.hand_out(())
        self.index = 0
        self.next_edges = ()
        self.device = -1
        self.base = 0
        self._sequence_nr = sequence_nr

    def hand_out(self, gradients: tuple[Tensor | None, ...]) -> None:
        """Make ``gradients`` the node's outputs."""
        self.node = cast("Node", lambda: gradients)

    @property
    def sequence_nr(self) -> int:
        """That of the next node that would have been made."""
        return self._sequence_nr

    @property
    def name(self) -> str:
        """Torch's name of the node."""
        return "torch::autograd::GraphRoot"


class _Ranked:
    """A node in the order of sequence numbers; ties are equal, as in ``std::priority_queue``."""

    __slots__ = ("ref",)

    def __init__(self, ref: NodeRef) -> None:
        self.ref = ref

    def __lt__(self, other: _Ranked) -> bool:
        return self.ref.sequence_nr > other.ref.sequence_nr


class GraphTask:
    """Everything one execution of ``backward`` or ``grad`` needs, under torch's names.

    ``nodes[i]``, ``dependencies[i]`` and ``exec_info[i]`` belong to the node with index ``i``.
    ``exec_info`` is None in a task without ``inputs=``, which means that every node runs.
    ``mutex`` guards ``dependencies``, ``not_ready``, ``captured_vars``, ``outstanding_tasks`` and
    ``hosting`` where several threads work on the task.
    """

    __slots__ = (
        "__weakref__",
        "_by_node",
        "accumulate_grad",
        "captured_vars",
        "cpu_ready_queue",
        "create_graph",
        "dependencies",
        "error",
        "exec_info",
        "executed",
        "fan_in",
        "final_callbacks",
        "future_completed",
        "has_error",
        "history",
        "host_gradients",
        "hosting",
        "id",
        "keep_graph",
        "left_hosts",
        "looked",
        "min_topological_nr",
        "mutex",
        "nodes",
        "nonfinite",
        "not_ready",
        "output_edges",
        "outstanding_tasks",
        "owner",
        "parent",
        "parent_node",
        "parents_of_leaves",
        "reentrant_depth",
        "root_edges",
        "root_gradients",
        "root_tensors",
        "stacks",
        "streams",
        "thread_locals",
        "threaded",
    )

    def __init__(
        self,
        *,
        keep_graph: bool,
        create_graph: bool,
        accumulate_grad: bool,
        reentrant_depth: int,
        cpu_ready_queue: ReadyQueue[GraphTask],
        thread_locals: ThreadLocalState | None = None,
    ) -> None:
        self.id = _next_id()
        self.keep_graph = keep_graph
        self.create_graph = create_graph
        self.accumulate_grad = accumulate_grad
        self.reentrant_depth = reentrant_depth
        self.cpu_ready_queue = cpu_ready_queue
        self.thread_locals = thread_locals
        """For device threads of the engine; None where the native engine has its own."""
        self.parent = -1
        self.parent_node = -1
        self.nodes: list[NodeRef] = []
        self._by_node: dict[Node, NodeRef] = {}
        self.root_edges: list[Edge] = []
        self.root_tensors: Sequence[object] = ()
        """What ``backward`` or ``grad`` was called on: tensors, or gradient edges."""
        self.root_gradients: Sequence[Tensor] = ()
        self.host_gradients: Sequence[Tensor] = ()
        """``root_gradients`` for the hosts of this task; with ``inputs=`` only."""
        self.output_edges: list[tuple[Node, int]] = []
        self.dependencies: list[int] = []
        self.fan_in: list[int] = []
        """``dependencies`` as they were counted; only where gradients are measured."""
        self.nonfinite: set[int] = set()
        """Nodes that were given a non-finite gradient; only where gradients are measured."""
        self.history: Any = None
        """Its :class:`~agviz_engine.rewind.PassHistory`, whose file imports this one; None: nothing
        is kept that going back needs."""
        self.looked: dict[int, Any] = {}
        """By node: what the measurer found of a custom Function that still had what it saved."""
        self.parents_of_leaves: dict[int, Tensor] = {}
        """Of AccumulateGrads whose hooks torch calls (:func:`native_run.leaf_parents`)."""
        self.not_ready: dict[int, InputBuffer] = {}
        self.exec_info: list[ExecInfo] | None = None
        self.captured_vars: list[Tensor | None] = []
        self.final_callbacks: list[Callable[[], None]] = []
        self.outstanding_tasks = 0
        self.executed = 0
        self.min_topological_nr = 0
        self.streams: GraphStreams | None = None
        """Set where there is an accelerator."""
        self.threaded = False
        """Whether device threads take part."""
        self.owner = -2
        self.mutex = threading.RLock()
        self.has_error = False
        self.error: BaseException | None = None
        self.stacks: list[str] = []
        """Anomaly mode's forward tracebacks, for the calling thread to warn with."""
        self.future_completed = False
        self.hosting: set[int] = set()
        self.left_hosts = threading.Condition(self.mutex)

    def renew(self) -> int:
        """Be another graph task for all who know it by its id, as its nodes run again.

        Returns:
            The id that it had.
        """
        before, self.id = self.id, _next_id()
        return before

    def add(self, ref: NodeRef) -> NodeRef:
        """Make ``ref`` a node of this task, with no dependencies so far."""
        self.nodes.append(ref)
        self.dependencies.append(0)
        return ref

    def find(self, node: Node) -> NodeRef | None:
        """Where ``node`` is in the graph; None: it is not. The first question takes longer."""
        if not self._by_node:
            self._by_node = {ref.node: ref for ref in self.nodes}
        return self._by_node.get(node)

    def may_sum(self, ref: NodeRef) -> bool:
        """Whether what came in at a node may be the sum of several gradients."""
        return not self.fan_in or self.fan_in[ref.index] != 1

    def can_checkpoint(self) -> bool:
        """Whether reentrant checkpointing may run in this task (``can_checkpoint``)."""
        return self.exec_info is None

    def increment_outstanding_tasks(self) -> None:
        """One more task is in a queue or being worked on, where several threads take part."""
        with self.mutex:
            self.outstanding_tasks += 1

    def decrement_outstanding_tasks(self) -> bool:
        """One task is done, where several threads take part.

        Returns:
            True where that was the last one (``GraphTask::completed``).
        """
        with self.mutex:
            self.outstanding_tasks -= 1
            return self.outstanding_tasks == 0

    def set_exception(self, error: BaseException) -> bool:
        """Keep the first exception; the tasks that remain are then only counted off.

        Returns:
            True where this was the first.
        """
        with self.mutex:
            if self.has_error:
                return False
            self.has_error = True
            self.error = error
            return True

    def init_to_execute(self, outputs: Sequence[Edge | None], *, accumulate_grad: bool) -> None:
        """Mark the nodes from which an output can be reached (``GraphTask::init_to_execute``).

        Args:
            outputs: what ``inputs=`` resolved to; None for an input that can't be reached.
            accumulate_grad: True for ``backward``, where the outputs themselves have to run.
        """
        infos = [ExecInfo() for _ in self.nodes]
        for output_idx, output in enumerate(outputs):
            if output is None:
                continue
            ref, input_nr = output
            if accumulate_grad:
                infos[ref.index].needed = True
            else:
                infos[ref.index].captures.append(Capture(input_nr, output_idx))
        self.captured_vars = [None] * len(outputs)
        self._mark_needed(infos)
        self.exec_info = infos

    def _mark_needed(self, infos: list[ExecInfo]) -> None:
        seen = bytearray(len(self.nodes))
        stack = [(self.nodes[0], iter(self.nodes[0].next_edges))]
        while stack:
            ref, edges = stack[-1]
            for edge in edges:
                if edge is None:
                    continue
                child = edge[0]
                if not seen[child.index]:
                    seen[child.index] = True
                    stack.append((child, iter(child.next_edges)))
                    break
                if infos[child.index].should_execute():
                    infos[ref.index].needed = True
            else:
                stack.pop()
                if stack and infos[ref.index].should_execute():
                    infos[stack[-1][0].index].needed = True

    def execution_order(self) -> list[Node]:
        """The order in which this task runs its nodes (``..._task_execution_order``).

        Raises:
            RuntimeError: several threads may take part, so that there is no such order, or nodes
                have run already.
        """
        if torch._C._is_multithreading_enabled():
            raise RuntimeError(_ORDER_NEEDS_ONE_THREAD)
        order: list[Node] = []
        remaining = list(self.dependencies)
        heap = [_Ranked(ref) for ref, _ in self.root_edges]
        heapq.heapify(heap)
        while heap:
            ref = heapq.heappop(heap).ref
            order.append(ref.node)
            for edge in ref.next_edges:
                if edge is None:
                    continue
                child = edge[0]
                if self.exec_info is not None and not self.exec_info[child.index].should_execute():
                    continue
                if remaining[child.index] == 0:
                    raise RuntimeError(
                        "it != dependencies.end(): the execution order can only be asked for "
                        "before a node has run"
                    )
                remaining[child.index] -= 1
                if remaining[child.index] == 0:
                    heapq.heappush(heap, _Ranked(child))
        return order

    def release(self) -> None:
        """Let go of graph and gradients, so that a finished task keeps nothing alive."""
        self.nodes.clear()
        self._by_node.clear()
        self.root_edges.clear()
        self.root_tensors = self.root_gradients = self.host_gradients = ()
        self.output_edges.clear()
        self.not_ready.clear()
        self.looked.clear()
        self.parents_of_leaves.clear()
        self.exec_info = None
        self.streams = None
        self.final_callbacks.clear()
