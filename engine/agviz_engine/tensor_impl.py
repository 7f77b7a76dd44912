"""What kind of tensor this is, at a glance (``c10/core/TensorImpl.h``).

A gradient is looked at wherever it goes: shape, strides, dtype, layout, device, whether it is
nested. Each of these questions to Python runs through code that a convolution has driven out of all
caches, so that together they cost more than all else the engine does. The answers stand side by
side in the tensor and are read in place, as a node's bookkeeping is
(:mod:`agviz_engine.native_node`), and by the same rule: their place is found by an experiment.

What follows the sizes and strides, its dtype, device, flags and dispatch keys, is not taken apart.
It is compared as a whole with that of tensors about which Python was asked: :func:`learn`.
"""

from __future__ import annotations

import functools
import struct
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import Parameter

from agviz_engine.errors import UnsupportedTorchError
from agviz_engine.native_node import BYTES, MEMORY, tensor_base

_WORD = 8
_SEARCHED = 16  # words
_DIMENSIONS = 5  # as many sizes and strides are kept in the tensor itself
_OFFSET_AND_NUMEL = 2  # words between the strides and the tail
_TAIL = 16  # bytes


class Plain(NamedTuple):
    """A strided tensor in the CPU's memory whose operators are torch's own."""

    dtype: torch.dtype
    is_contiguous: bool


known_tails: dict[bytes, Plain] = {}
"""What :func:`learn` found, by the bytes behind a tensor's strides."""


def _size_word(*shape: int) -> list[int]:
    """Where the number of dimensions stands, with sizes, strides and the rest behind it."""
    tensor = torch.empty(2, *shape)[1]
    begin, dimensions = tensor_base(tensor), len(shape)
    found = []
    for i in range(_SEARCHED):
        words = MEMORY[begin + i : begin + i + 1 + 2 * _DIMENSIONS + _OFFSET_AND_NUMEL]
        strides = words[1 + _DIMENSIONS :][:dimensions]
        if (words[0], words[1 : 1 + dimensions], strides, words[-2:]) == (
            dimensions,
            list(shape),
            list(tensor.stride()),
            [tensor.numel(), tensor.numel()],
        ):
            found.append(i)
    return found


class _Wrapper(Tensor):
    @classmethod
    def __torch_dispatch__(cls, *_: Any) -> Any:
        return NotImplemented


@functools.cache
def calibrate() -> int:
    """Find where a tensor keeps its sizes, in words from the beginning of the ``TensorImpl``.

    Raises:
        UnsupportedTorchError: this torch keeps them, or what follows them, in another way.
    """
    found = _size_word(7, 11, 13)
    if len(found) != 1 or _size_word(2, 3, 5, 7, 11) != found or _size_word(17) != found:
        raise _refusal("the sizes")
    tensor, other = torch.empty(2, 3), torch.empty(4, 3)
    unlike = [
        tensor.t(),
        other[::2],
        tensor.double(),
        tensor.to_sparse(),
        tensor.to("meta"),
        tensor.to(torch.complex64).conj(),
        torch._efficientzerotensor(2, 3),
        torch._nested_view_from_buffer(
            tensor.flatten(), torch.tensor([[2, 3]]), torch.tensor([[3, 1]]), torch.tensor([0])
        ),
        Tensor._make_wrapper_subclass(_Wrapper, (2, 3)),
        cast("Any", torch._C)._functorch._add_batch_dim(tensor, 0, 1),
    ]
    begin = (found[0] + 1 + 2 * _DIMENSIONS + _OFFSET_AND_NUMEL) * _WORD
    tails = []
    for each in (tensor, other, Parameter(other), *unlike):
        address = tensor_base(each) * _WORD + begin
        tails.append(bytes(BYTES[address : address + _TAIL]))
    if len(set(tails[:3])) != 1 or tails[0] in tails[3:]:
        raise _refusal("the kind")
    return found[0]


SIZES = calibrate() * _WORD
POINTER = object.__basicsize__ // _WORD
"""THPVariable: PyObject_HEAD, then the pointer to the ``TensorImpl``."""
unpack_tensor = struct.Struct(
    f"={2 * _DIMENSIONS + 1}Q{_OFFSET_AND_NUMEL * _WORD}x{_TAIL}s"
).unpack_from
_STRIDES = 1 + _DIMENSIONS
_plain_types = (Tensor, Parameter)


def is_stealable_for(gradient: Tensor, variable: Tensor) -> bool:
    """Whether both are plain, contiguous and alike in dtype and shape. False says nothing.

    ``gradient`` must be of type Tensor itself, ``variable`` too or a Parameter.
    """
    ours = unpack_tensor(BYTES, MEMORY[(id(gradient) >> 3) + POINTER] + SIZES)
    theirs = unpack_tensor(BYTES, MEMORY[(id(variable) >> 3) + POINTER] + SIZES)
    plain, other = known_tails.get(ours[-1]), known_tails.get(theirs[-1])
    if plain is None or other is None or plain.dtype is not other.dtype:
        return False
    dimensions = ours[0]
    return (
        plain.is_contiguous
        and other.is_contiguous
        and dimensions <= _DIMENSIONS
        and ours[: dimensions + 1] == theirs[: dimensions + 1]
    )


def learn(tensor: Tensor) -> None:
    """Ask Python about a tensor, so that the next of its kind is known at a glance."""
    if type(tensor) not in _plain_types or tensor.layout is not torch.strided:
        return
    words = unpack_tensor(BYTES, MEMORY[(id(tensor) >> 3) + POINTER] + SIZES)
    is_plain = (
        tensor.is_cpu
        and not tensor.is_nested
        and cast("Any", torch._C)._dispatch_keys(tensor) == _plain_keys()
    )
    if is_plain:
        known_tails[words[-1]] = Plain(tensor.dtype, tensor.is_contiguous())


@functools.cache
def _plain_keys() -> Any:
    return cast("Any", torch._C)._dispatch_keys(torch.empty(0))


def _refusal(what: str) -> UnsupportedTorchError:
    return UnsupportedTorchError(
        f"agviz can't serve torch {torch.__version__}: {what} of a tensor was not found in its "
        "TensorImpl; install torch 2.13 or update agviz"
    )
