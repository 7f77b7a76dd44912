"""PythonEngine: what torch's Python code calls, ``run_backward`` and its checks.

Replaces ``torch._C._ImperativeEngine`` (``python_engine.cpp``) under
``torch.autograd.Variable._execution_engine`` while agviz's engine is installed.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node

from agviz_engine import deep_graphs, interrupt, native_run
from agviz_engine.gradient_edge import holders, leaf_edge
from agviz_engine.node import base_of
from agviz_engine.releases import function_keeps_node, is_node_alive
from agviz_engine.thread_state import current
from agviz_engine.torch_layout import grad_accumulator, topological_nr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agviz_engine.engine import Engine
    from agviz_engine.graph_task import Edge, GraphTask

_C = cast("Any", torch._C)
UNJUDGED = "an argument that only torch can judge"
"""Why a call is handed to the native engine whose arguments it may refuse."""
_CALLER = 4  # stacklevel of a warning for the line in graph.py that calls run_backward

_prefers_native = threading.local()


@contextlib.contextmanager
def native() -> Iterator[None]:
    """Let the native engine run what this thread calls inside, although ours is installed."""
    before = getattr(_prefers_native, "on", False)
    _prefers_native.on = True
    try:
        yield
    finally:
        _prefers_native.on = before


def _unseen_by_dynamo(function: Callable[..., Any]) -> Callable[..., Any]:
    """Keep Dynamo from compiling the engine, as it can't compile torch's.

    ``torch.compiler.disable`` does the same, but imports Dynamo, which takes a second.
    """
    eval_frame = _C._dynamo.eval_frame
    skip = eval_frame._FrameExecStrategy(
        eval_frame._FrameAction.SKIP, eval_frame._FrameAction.DEFAULT
    )

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        before = eval_frame.set_eval_frame(None)
        try:
            return function(*args, **kwargs)
        finally:
            eval_frame.set_eval_frame(before)

    marked = cast("Any", call)
    eval_frame.set_code_exec_strategy(marked.__code__, skip)
    marked._torchdynamo_disable = True
    marked._torchdynamo_disable_msg = "the autograd engine runs eagerly"
    return call


class PythonEngine(_C._ImperativeEngine):  # type: ignore[misc, name-defined]
    """The object behind ``Variable._execution_engine`` while the engine is installed."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.engine = engine
        self._warned_create_graph = False

    @_unseen_by_dynamo
    def run_backward(self, *args: Any, **kwargs: Any) -> tuple[Tensor | None, ...] | None:
        """Run a backward pass (``THPEngine_run_backward``).

        Takes ``tensors, grad_tensors, keep_graph, create_graph, inputs=(), allow_unreachable=False,
        accumulate_grad=False``. A call that torch would refuse is handed to torch, which says why.

        Returns:
            The gradients for ``inputs``, or None where they were accumulated.

        Raises:
            RuntimeError, TypeError: an argument does not fit.
            BaseException: whatever a node or hook raised, unchanged.
        """
        with interrupt.held_back():
            call = _parse(args, kwargs)
            reason = UNJUDGED if call is None else _why_native()
            if call is None or reason is not None:
                return self._delegate(reason or "", args, kwargs)
            if call.accumulate_grad:
                for given in call.inputs:
                    if isinstance(given, Tensor):
                        given.retain_grad()
                if call.create_graph:
                    self._warn_create_graph()
            held = () if function_keeps_node() else holders(call.tensors)
            try:
                captured = self.engine.execute(
                    [_root_edge(tensor) for tensor in call.tensors],
                    call.grad_tensors,
                    keep_graph=call.keep_graph,
                    create_graph=call.create_graph,
                    accumulate_grad=call.accumulate_grad,
                    inputs=(lambda task: _find_inputs(task, call.inputs)) if call.inputs else None,
                    number_of_inputs=len(call.inputs),
                    min_topological_nr=_min_topological_nr(call.inputs),
                    tensors=call.tensors,
                )
            finally:
                del held
                deep_graphs.let_go_with(call.tensors)
            if call.accumulate_grad:
                return None
            for index, gradient in enumerate(captured):
                if gradient is None and not call.allow_unreachable:
                    raise RuntimeError(native_run.unused_input_text().format(index))
            return tuple(captured)

    def _delegate(
        self, reason: str, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[Tensor | None, ...] | None:
        """Hand a call to the native engine, and say so; silently where there is no reason."""
        emit = self.engine.emit
        if reason:
            emit.delegated(reason)
        try:
            return native_run.ENGINE.run_backward(*args, **kwargs)  # type: ignore[no-any-return]
        except BaseException as error:
            if reason:
                emit.delegated_failed(error)
            raise

    def queue_callback(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` at the end of the current backward pass (``Engine::queue_callback``).

        Raises:
            RuntimeError: no backward pass is running on this thread.
        """
        graph_task = current().current_graph_task
        if graph_task is None:
            native_run.ENGINE.queue_callback(callback)
            return
        with graph_task.mutex:
            index = len(graph_task.final_callbacks)
            graph_task.final_callbacks.append(callback)
        self.engine.emit.callback_queued(graph_task, index, callback)

    def is_checkpoint_valid(self) -> bool:
        """Whether reentrant checkpointing may run here (``Engine::is_checkpoint_valid``)."""
        if current().current_graph_task is None:
            return bool(native_run.ENGINE.is_checkpoint_valid())
        return current().checkpoint_valid

    def _warn_create_graph(self) -> None:
        if not self._warned_create_graph or native_run.warns_always():
            self._warned_create_graph = True
            text = native_run.create_graph_warning()
            warnings.warn(text, UserWarning, stacklevel=_CALLER)


class _Call(NamedTuple):
    """The arguments of ``run_backward``, known to be such that torch would not refuse them."""

    tensors: Any
    grad_tensors: Any
    keep_graph: bool
    create_graph: bool
    inputs: Any
    allow_unreachable: bool
    accumulate_grad: bool


def _parse(args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call | None:
    """The arguments, or None where torch would have something to say about them."""
    names = _Call._fields
    if len(args) > len(names) or not kwargs.keys() <= set(names[len(args) :]):
        return None
    given: dict[str, Any] = {"inputs": (), "allow_unreachable": False, "accumulate_grad": False}
    given.update(zip(names, args, strict=False))
    given.update(kwargs)
    if len(given) != len(names):
        return None
    for flag in ("keep_graph", "create_graph", "allow_unreachable", "accumulate_grad"):
        if not isinstance(given[flag], int):
            return None
        given[flag] = bool(given[flag])
    call = _Call(**given)
    return call if _roots_fit(call) and _inputs_fit(call) else None


def _roots_fit(call: _Call) -> bool:
    tensors, gradients = call.tensors, call.grad_tensors
    if not isinstance(tensors, tuple) or not isinstance(gradients, tuple):
        return False
    if len(tensors) != len(gradients) or not all(isinstance(g, Tensor) for g in gradients):
        return False
    if native_run.legacy_vmap_level() and (call.accumulate_grad or any(map(_is_batched, tensors))):
        return False
    return all(
        _edge_fits(tensor)
        if isinstance(tensor, GradientEdge)
        else isinstance(tensor, Tensor) and (tensor.grad_fn is not None or tensor.requires_grad)
        for tensor in tensors
    )


def _inputs_fit(call: _Call) -> bool:
    if type(call.inputs) is not tuple or not (call.inputs or call.accumulate_grad):
        return False
    if native_run.legacy_vmap_level() and any(map(_is_batched, call.inputs)):
        return False
    return all(
        _edge_fits(given)
        if isinstance(given, GradientEdge)
        else isinstance(given, Tensor) and given.requires_grad
        for given in call.inputs
    )


def _edge_fits(edge: GradientEdge) -> bool:
    node: object = edge.node
    return isinstance(node, Node) and type(edge.output_nr) is int and is_node_alive(node)


def _is_batched(value: Any) -> bool:
    """Whether a tensor was wrapped by ``torch._vmap_internals.vmap``."""
    if not isinstance(value, Tensor):
        return False
    return "Batched" in str(_C._dispatch_keys(value)).replace("FuncTorchBatched", "")


def _why_native() -> str | None:
    """Why a call has to be handed to the native engine, or None; empty where it was asked for."""
    if getattr(_prefers_native, "on", False):
        return ""
    compiled_autograd = sys.modules.get("torch._dynamo.compiled_autograd")
    if compiled_autograd is not None and compiled_autograd.compiled_autograd_enabled:
        return "compiled autograd is enabled"
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        return "a CUDA graph is being captured"
    return None


def _root_edge(tensor: Any) -> tuple[Node, int]:
    if isinstance(tensor, GradientEdge):
        return tensor.node, tensor.output_nr
    if tensor.grad_fn is not None:
        return tensor.grad_fn, tensor.output_nr
    return leaf_edge(tensor)


def _base_of_input(given: Any) -> int:
    """Word number of the node that one of ``inputs=`` names; 0 for a leaf no graph has used."""
    if isinstance(given, GradientEdge):
        return base_of(given.node)
    if given.grad_fn is not None:
        return base_of(given.grad_fn)
    return grad_accumulator(given)


def _min_topological_nr(inputs: Sequence[Any]) -> int:
    """Below this no node leads to an input (``compute_min_topological_nr``)."""
    bases = [_base_of_input(given) for given in inputs]
    return min((topological_nr[base] if base else 0 for base in bases), default=0)


def _find_inputs(graph_task: GraphTask, inputs: Sequence[Any]) -> list[Edge | None]:
    """The nodes in the graph that ``inputs=`` name; None for those that are not in it."""
    by_base = {ref.base: ref for ref in graph_task.nodes}
    found: list[Edge | None] = []
    for given in inputs:
        base = _base_of_input(given)
        ref = by_base.get(base) if base else None
        is_leaf = isinstance(given, Tensor) and given.grad_fn is None
        number = 0 if is_leaf else given.output_nr
        found.append(None if ref is None else (ref, number))
    return found
