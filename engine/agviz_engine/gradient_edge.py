"""The edge from a leaf to its AccumulateGrad (``impl::gradient_edge``), without a trace of asking.

``torch.autograd.graph.get_gradient_edge`` takes a view of the leaf for it. Modes and profiles
would show that, not every subclass can be viewed, and a view of a functorch leaf belongs to another
level. A custom Function knows the edges of its inputs before it computes anything.

Tensors that a ``grad`` or ``vjp`` of functorch wrapped go another way: where that has ended, torch
2.14 and newer take the wrapper off before a custom Function gets it, and what was in it has no such
edge. A node made in C++ is given the tensor as it is.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch._functorch import utils
from torch.autograd.graph import GradientEdge
from torch.utils._python_dispatch import _disable_current_modes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch.autograd.graph import Node

_C = cast("Any", torch._C)
_allowed_in_transforms = cast("Any", utils).enable_single_level_autograd_function
_SingleLevelFunction = cast("Any", torch.autograd.function)._SingleLevelFunction


class _Found(Exception):  # noqa: N818 - nothing went wrong
    """Ends the forward: a node that never got an output is shown to no ``node_creation_hook``."""


class _Finder(_SingleLevelFunction):  # type: ignore[misc, valid-type]
    """Not a ``Function``: those follow functorch's rules, which ask for ``setup_context``."""

    @staticmethod
    def forward(ctx: Any, _leaf: Tensor) -> None:
        _found.edge = ctx.next_functions[0]
        raise _Found


_found = threading.local()
_error: Callable[[Tensor], Any] = _C._functions.DelayedError("", 1)
_is_wrapped_by_grad = _C._functorch.is_gradtrackingtensor
_find: Callable[[Tensor], None] = _Finder.apply


def leaf_edge(leaf: Tensor) -> tuple[Node, int]:
    """The AccumulateGrad of ``leaf``, which must require a gradient, and 0 for its only input."""
    with _unrecorded(), _allowed_in_transforms():
        if _is_wrapped_by_grad(leaf):
            return cast("tuple[Node, int]", _error(leaf).grad_fn.next_functions[0])
        with contextlib.suppress(_Found):
            _find(leaf)
        return cast("tuple[Node, int]", _found.__dict__.pop("edge"))


def holders(tensors: Sequence[Any]) -> list[Node]:
    """What keeps the graphs of the roots of a pass, although a hook may detach the roots.

    Only of roots made by a custom Function, where the Python object of its node does not keep it
    (:func:`agviz_engine.releases.function_keeps_node`). Of a subclass with code of its own nothing
    is made: that code would see it.
    """
    with _unrecorded(), _disable_current_modes():
        return [
            _error(tensor).grad_fn
            for tensor in tensors
            if type(tensor) is Tensor and isinstance(tensor.grad_fn, _C._FunctionBase)
        ]


@contextlib.contextmanager
def _unrecorded() -> Iterator[None]:
    """With gradient mode on, and nothing in a profile."""
    profiled = _C._autograd._profiler_enabled()
    if profiled:
        _C._autograd._enable_record_function(False)
    try:
        with torch.enable_grad():
            yield
    finally:
        if profiled:
            _C._autograd._enable_record_function(True)


def root_edge(tensor: Any) -> tuple[Node, int]:
    """The edge at which a tensor or GradientEdge that is differentiated lies."""
    if isinstance(tensor, GradientEdge):
        return tensor.node, tensor.output_nr
    if tensor.grad_fn is not None:
        return tensor.grad_fn, tensor.output_nr
    return leaf_edge(tensor)
