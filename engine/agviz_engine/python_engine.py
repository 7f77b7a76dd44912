"""PythonEngine: what torch's Python code calls, ``run_backward`` and its checks.

Stands in for ``torch._C._ImperativeEngine`` (``python_engine.cpp``) under
``torch.autograd.Variable._execution_engine`` while agviz's engine is installed.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node, get_gradient_edge
from torch.nn import Parameter

from agviz_engine import native_run
from agviz_engine.native_node import FUNCTION_BASE
from agviz_engine.thread_state import current

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agviz_engine.engine import Engine
    from agviz_engine.graph_task import Edge, GraphTask
    from agviz_engine.node import NodeRef

_C = cast("Any", torch._C)
_BACKWARD_IN_VMAP = (
    "backward() called inside torch.vmap. This is not supported, please call backward() outside "
    "torch.vmap or instead use torch.autograd.grad inside torch.vmap"
)
_CREATE_GRAPH_CYCLE = (
    "Using backward() with create_graph=True will create a reference cycle between the parameter "
    "and its gradient which can cause a memory leak. We recommend using autograd.grad when "
    "creating the graph to avoid this. If you have to use this function, make sure to reset the "
    ".grad fields of your parameters to None after use to break the cycle and avoid the leak."
)
_UNUSED = (
    "One of the differentiated Tensors appears to not have been used in the graph. Set "
    "allow_unused=True if this is the desired behavior."
)

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


class PythonEngine(_C._ImperativeEngine):  # type: ignore[misc, name-defined]
    """The object behind ``Variable._execution_engine`` while the engine is installed."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.engine = engine
        self._warned_create_graph = False

    def run_backward(
        self,
        tensors: Any,
        grad_tensors: Any,
        keep_graph: bool,
        create_graph: bool,
        inputs: Any = None,
        allow_unreachable: bool = False,
        accumulate_grad: bool = False,
    ) -> tuple[Tensor | None, ...] | None:
        """Run a backward pass (``THPEngine_run_backward``).

        Raises:
            RuntimeError, TypeError: an argument does not fit, with torch's message.
            BaseException: whatever a node or hook raised, unchanged.
        """
        reason = _why_native(tensors)
        if reason is not None:
            return self._delegate(  # type: ignore[no-any-return]
                reason,
                tensors,
                grad_tensors,
                keep_graph,
                create_graph,
                inputs,
                allow_unreachable,
                accumulate_grad,
            )
        roots, gradients = _check_roots(tensors, grad_tensors, accumulate_grad=accumulate_grad)
        find_inputs = None
        if inputs:
            _check_inputs(inputs, accumulate_grad=accumulate_grad)

            def find_inputs(graph_task: GraphTask) -> Sequence[Edge | None]:
                return _find_inputs(graph_task, inputs)

        elif not accumulate_grad:
            raise ValueError("grad requires non-empty inputs.")
        if accumulate_grad and create_graph:
            self._warn_create_graph()
        captured = self.engine.execute(
            roots,
            gradients,
            keep_graph=bool(keep_graph),
            create_graph=bool(create_graph),
            accumulate_grad=bool(accumulate_grad),
            inputs=find_inputs,
            number_of_inputs=len(inputs) if inputs else 0,
        )
        if accumulate_grad or inputs is None:
            return None
        if not allow_unreachable and any(gradient is None for gradient in captured):
            raise RuntimeError(_UNUSED)
        return tuple(captured)

    def queue_callback(self, callback: Callable[[], None]) -> None:
        """Run ``callback`` at the end of the current backward pass (``Engine::queue_callback``).

        Raises:
            RuntimeError: no backward pass is running on this thread.
        """
        graph_task = current.current_graph_task
        if graph_task is None:
            native_run.ENGINE.queue_callback(callback)
            return
        with graph_task.mutex:
            index = len(graph_task.final_callbacks)
            graph_task.final_callbacks.append(callback)
        self.engine.tell.callback_queued(graph_task, index, callback)

    def is_checkpoint_valid(self) -> bool:
        """Whether reentrant checkpointing may run here (``Engine::is_checkpoint_valid``)."""
        if current.current_graph_task is None:
            return bool(native_run.ENGINE.is_checkpoint_valid())
        return current.checkpoint_valid

    def _delegate(self, reason: str, *arguments: Any) -> Any:
        if reason:
            self.engine.tell.delegated(reason)
        *positional, allow_unreachable, accumulate_grad = arguments
        if positional[-1] is None:
            positional.pop()
        return native_run.ENGINE.run_backward(
            *positional, allow_unreachable=allow_unreachable, accumulate_grad=accumulate_grad
        )

    def _warn_create_graph(self) -> None:
        if not self._warned_create_graph or torch.is_warn_always_enabled():
            self._warned_create_graph = True
            warnings.warn(_CREATE_GRAPH_CYCLE, UserWarning, stacklevel=4)


def _why_native(tensors: Any) -> str | None:
    """Why a call has to be handed to the native engine, or None; empty where it was asked for."""
    if getattr(_prefers_native, "on", False):
        return ""
    compiled_autograd = sys.modules.get("torch._dynamo.compiled_autograd")
    if compiled_autograd is not None and compiled_autograd.compiled_autograd_enabled:
        return "compiled autograd is enabled"
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        return "a CUDA graph is being captured"
    if _C._are_functorch_transforms_active() and any(
        isinstance(tensor, Tensor) and tensor.requires_grad and tensor.grad_fn is None
        for tensor in tensors
    ):
        return "a leaf is differentiated inside a functorch transform"
    return None


def _typename(value: object) -> str:
    return type(value).__name__


def _check_roots(
    tensors: Any, grad_tensors: Any, *, accumulate_grad: bool
) -> tuple[list[tuple[Node, int]], list[Tensor]]:
    if not isinstance(tensors, tuple):
        raise TypeError(f"tensors argument is expected to be a tuple, but got {_typename(tensors)}")
    if not isinstance(grad_tensors, tuple):
        raise TypeError(
            f"grad_tensors argument is expected to be a tuple, but got {_typename(grad_tensors)}"
        )
    if len(tensors) != len(grad_tensors):
        raise RuntimeError(f"got {len(tensors)} tensors and {len(grad_tensors)} gradients")
    if accumulate_grad and _legacy_vmap_level():
        raise RuntimeError(_BACKWARD_IN_VMAP)
    roots = [_root_edge(i, tensor) for i, tensor in enumerate(tensors)]
    gradients = [_root_gradient(i, gradient) for i, gradient in enumerate(grad_tensors)]
    return roots, gradients


def _root_edge(index: int, tensor: Any) -> tuple[Node, int]:
    if isinstance(tensor, GradientEdge):
        return tensor.node, tensor.output_nr
    if not isinstance(tensor, Tensor):
        raise RuntimeError(  # noqa: TRY004 - torch's type
            f"element {index} of tensors tuple is neither a Tensor nor a GradientEdge"
        )
    if tensor.grad_fn is not None:
        return tensor.grad_fn, tensor.output_nr
    if not tensor.requires_grad:
        raise RuntimeError(
            f"element {index} of tensors does not require grad and does not have a grad_fn"
        )
    return get_gradient_edge(tensor)[:2]


def _root_gradient(index: int, gradient: Any) -> Tensor:
    if isinstance(gradient, Tensor):
        return gradient
    if gradient is not None:
        raise RuntimeError(f"element {index} of gradients tuple is not a Tensor or None")
    raise RuntimeError(
        f"element {index} of gradients tuple is None, but the corresponding Tensor requires grad"
    )


def _legacy_vmap_level() -> int:
    level: int = _C._vmapmode_increment_nesting() - 1
    _C._vmapmode_decrement_nesting()
    return level


def _check_inputs(inputs: Any, *, accumulate_grad: bool) -> None:
    if type(inputs) is not tuple:
        raise TypeError("inputs to run_backward must be a tuple")
    for given in inputs:
        if isinstance(given, GradientEdge):
            if not isinstance(given.node, (Node, FUNCTION_BASE)):
                raise TypeError(
                    "GradientEdge first object must be an autograd.graph.Node but got "
                    f"{_typename(given.node)}"
                )
        elif isinstance(given, Tensor):
            if accumulate_grad and given.requires_grad:
                given.retain_grad()
            if not given.requires_grad:
                raise RuntimeError("One of the differentiated Tensors does not require grad")
        else:
            raise TypeError(
                f"all inputs have to be Tensors or GradientEdges, but got {_typename(given)}"
            )


def _find_inputs(graph_task: GraphTask, inputs: Sequence[Any]) -> list[Edge | None]:
    """The nodes in the graph that ``inputs=`` name; None for those that are not in it.

    For a leaf its accumulator is looked up among the nodes that were reached, because asking a
    leaf for its gradient edge would make a new one where there was none.
    """
    refs = graph_task.refs
    accumulators = {
        id(cast("Any", ref.node).variable): ref
        for ref in graph_task.nodes
        if ref.is_accumulate_grad
    }
    found: list[Edge | None] = []
    for given in inputs:
        if isinstance(given, GradientEdge):
            node, number = given.node, given.output_nr
        elif given.grad_fn is not None:
            node, number = cast("Node", given.grad_fn), given.output_nr
        else:
            ref = accumulators.get(id(given))
            if ref is not None and not _is_stale(ref, given):
                found.append((ref, 0))
                continue
            node, number = get_gradient_edge(given)[:2]
        ref = refs.get(node)
        found.append(None if ref is None else (ref, number))
    return found


def _is_stale(ref: NodeRef, leaf: Tensor) -> bool:
    """Whether ``leaf`` got another accumulator since the graph was made, as by ``set_``.

    Asked only of plain tensors: wrapped ones and other layouts have no edge to ask for.
    """
    if type(leaf) not in (Tensor, Parameter) or leaf.layout is not torch.strided:
        return False
    if leaf.is_mkldnn or _C._are_functorch_transforms_active():
        return False
    return get_gradient_edge(leaf).node is not ref.node
