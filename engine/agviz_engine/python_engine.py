"""PythonEngine: what torch's Python code calls, ``run_backward`` and its checks.

Replaces ``torch._C._ImperativeEngine`` (``python_engine.cpp``) under
``torch.autograd.Variable._execution_engine`` while agviz's engine is installed.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from agviz_engine import deep_graphs, interrupt, left_out, native_run
from agviz_engine.backward_call import CAPTURED, UNJUDGED, parse, unseen_by_dynamo, why_native
from agviz_engine.gradient_edge import holders, root_edge
from agviz_engine.located_node import base_of
from agviz_engine.releases import function_keeps_node
from agviz_engine.thread_state import current
from agviz_engine.torch_layout import grad_accumulator, topological_nr

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agviz_engine.engine import Engine
    from agviz_engine.graph_task import Edge, GraphTask

_C = cast("Any", torch._C)
_CALLER = 4  # stacklevel of a warning for the line in graph.py that calls run_backward


class PythonEngine(_C._ImperativeEngine):  # type: ignore[misc, name-defined]
    """The object behind ``Variable._execution_engine`` while the engine is installed."""

    def __init__(self, engine: Engine) -> None:
        super().__init__()
        self.engine = engine
        self._warned_create_graph = False

    @unseen_by_dynamo
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
        is_within = current().current_graph_task is not None
        if left_out.leaves_out(self.engine.registry, args, kwargs, is_within=is_within):
            return left_out.run(self.engine.emit, native_run.ENGINE.run_backward, args, kwargs)  # type: ignore[no-any-return]
        with interrupt.held_back():
            call = parse(args, kwargs)
            reason = UNJUDGED if call is None else why_native()
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
                    [root_edge(tensor) for tensor in call.tensors],
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
        around = current().current_graph_task
        if around is not None and around.history is not None:
            around.history.note("made a call that torch's own engine served")
        multithreading = torch._C._is_multithreading_enabled()
        if reason == CAPTURED:
            # Torch's device thread has run nothing yet: what libraries make for a thread that uses
            # them first (cublasCreate) can't be captured. The caller's has run the forward.
            torch._C._set_multithreading_enabled(False)
        try:
            return native_run.ENGINE.run_backward(*args, **kwargs)  # type: ignore[no-any-return]
        except BaseException as error:
            if reason:
                emit.delegated_failed(error)
            raise
        finally:
            if reason == CAPTURED:
                torch._C._set_multithreading_enabled(multithreading)

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
