"""The edge from a leaf to its AccumulateGrad (``impl::gradient_edge``), without a trace of asking.

``torch.autograd.graph.get_gradient_edge`` takes a view of the leaf for it. Modes and profiles
would show that, not every subclass can be viewed, and a view of a functorch leaf belongs to another
level. A custom Function knows the edges of its inputs before it computes anything.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch._functorch import utils

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.autograd.graph import Node

_C = cast("Any", torch._C)
_allowed_in_transforms = cast("Any", utils).enable_single_level_autograd_function


class _Finder(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, _leaf: Tensor) -> None:
        _found.edge = ctx.next_functions[0]


_found = threading.local()
_find: Callable[[Tensor], None] = super(torch.autograd.Function, _Finder).apply
"""``apply`` without functorch's rules for Functions."""


def leaf_edge(leaf: Tensor) -> tuple[Node, int]:
    """The AccumulateGrad of ``leaf``, which must require a gradient, and 0 for its only input."""
    profiled = _C._autograd._profiler_enabled()
    if profiled:
        _C._autograd._enable_record_function(False)
    try:
        with torch.enable_grad(), _allowed_in_transforms():
            _find(leaf)
        return cast("tuple[Node, int]", _found.__dict__.pop("edge"))
    finally:
        if profiled:
            _C._autograd._enable_record_function(True)
