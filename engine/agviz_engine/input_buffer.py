"""InputBuffer: where the gradients of a node's inputs gather (torch's ``input_buffer.cpp``)."""

from __future__ import annotations

import sys
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor, is_grad_enabled

from agviz_engine.tensor_facts import held_bytes
from agviz_engine.torch_layout import fits_into, has_own_storage

__all__ = ["InputBuffer", "accumulate", "held_bytes"]

_C = cast("Any", torch._C)
_REFERENCES = 3
"""Holders of a gradient of which only the buffer is one: the buffer, a variable here, and
``getrefcount``'s own."""


_REFERENCES_HERE = 2
"""The same of a gradient that comes in, without those of the callers."""


InputBuffer: TypeAlias = "list[Tensor | None]"
"""One slot per input of a node; slot ``i`` is None while input ``i`` is undefined.

A plain list, because one is made for every node, and few ever have to add anything.
"""


def accumulate(buffer: InputBuffer, position: int, gradient: Tensor, holders: int) -> None:
    """Add ``gradient`` to that in the slot ``position`` (``InputBuffer::accumulate``).

    ``holders`` of the gradient are the engine's own, in the frames that call this.
    """
    old = cast("Tensor", buffer[position])
    if is_grad_enabled():
        buffer[position] = old + gradient
    elif sys.getrefcount(old) <= _REFERENCES and _can_accumulate_inplace(old, gradient):
        old.add_(gradient)
    elif old.is_sparse or old.is_sparse_csr:
        may_change = sys.getrefcount(gradient) <= holders + _REFERENCES_HERE
        if may_change and _is_plain_and_alone(gradient):
            buffer[position] = gradient.add_(old)
        else:
            buffer[position] = gradient + old
    else:
        buffer[position] = old + gradient


def _can_accumulate_inplace(old: Tensor, gradient: Tensor) -> bool:
    """``can_accumulate_inplace``, for plain tensors; under a torch-dispatch mode none is plain."""
    return (
        type(old) is Tensor
        and type(gradient) is Tensor
        and fits_into(gradient, old)
        and cast("Any", old)._use_count() == 1
        and has_own_storage(old)
        and not _C._len_torch_dispatch_stack()
    )


def _is_plain_and_alone(tensor: Tensor) -> bool:
    return _can_accumulate_inplace(tensor, tensor)
