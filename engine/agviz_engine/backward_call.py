"""What torch's Python code calls the engine with, and whether it is a call that we may take."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node

from agviz_engine.releases import is_node_alive
from agviz_engine.torch_modes import legacy_vmap_level

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_C = cast("Any", torch._C)
CAPTURED = "a CUDA graph is being captured"
UNJUDGED = "an argument that only torch can judge"
"""Why a call is handed to the native engine whose arguments it may refuse."""

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


def unseen_by_dynamo(function: Callable[..., Any]) -> Callable[..., Any]:
    """Keep Dynamo from compiling the engine, as it can't compile torch's.

    ``torch.compiler.disable`` does the same, but imports Dynamo, which takes a second.
    """
    eval_frame = _C._dynamo.eval_frame

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        before = eval_frame.set_eval_frame(None)
        try:
            return function(*args, **kwargs)
        finally:
            eval_frame.set_eval_frame(before)

    marked = cast("Any", call)
    if hasattr(eval_frame, "set_code_exec_strategy"):
        action = eval_frame._FrameAction
        skip = eval_frame._FrameExecStrategy(action.SKIP, action.DEFAULT)
        eval_frame.set_code_exec_strategy(marked.__code__, skip)
    else:  # torch 2.6
        eval_frame.skip_code(marked.__code__)
    marked._torchdynamo_disable = True
    marked._torchdynamo_disable_msg = "the autograd engine runs eagerly"
    return call


class EngineCall(NamedTuple):
    """The arguments of ``run_backward``, known to be such that torch would not refuse them."""

    tensors: Any
    grad_tensors: Any
    keep_graph: bool
    create_graph: bool
    inputs: Any
    allow_unreachable: bool
    accumulate_grad: bool


def parse(args: tuple[Any, ...], kwargs: dict[str, Any]) -> EngineCall | None:
    """The arguments, or None where torch would have something to say about them."""
    names = EngineCall._fields
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
    call = EngineCall(**given)
    return call if _roots_fit(call) and _inputs_fit(call) else None


def _roots_fit(call: EngineCall) -> bool:
    tensors, gradients = call.tensors, call.grad_tensors
    if not isinstance(tensors, tuple) or not isinstance(gradients, tuple):
        return False
    if len(tensors) != len(gradients) or not all(isinstance(g, Tensor) for g in gradients):
        return False
    if legacy_vmap_level() and (call.accumulate_grad or any(map(_is_batched, tensors))):
        return False
    return all(
        _edge_fits(tensor)
        if isinstance(tensor, GradientEdge)
        else isinstance(tensor, Tensor) and (tensor.grad_fn is not None or tensor.requires_grad)
        for tensor in tensors
    )


def _inputs_fit(call: EngineCall) -> bool:
    if type(call.inputs) is not tuple or not (call.inputs or call.accumulate_grad):
        return False
    if legacy_vmap_level() and any(map(_is_batched, call.inputs)):
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


def why_native() -> str | None:
    """Why a call has to be handed to the native engine, or None; empty where it was asked for."""
    if getattr(_prefers_native, "on", False):
        return ""
    # Another thread may be importing it at this moment.
    compiled_autograd = sys.modules.get("torch._dynamo.compiled_autograd")
    if getattr(compiled_autograd, "compiled_autograd_enabled", False):
        return "compiled autograd is enabled"
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        return CAPTURED
    return None
