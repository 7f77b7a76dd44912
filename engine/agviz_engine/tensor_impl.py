"""What kind of tensor this is, at a glance (``c10/core/TensorImpl.h``).

A gradient is looked at wherever it goes: shape, strides, dtype, layout, device, whether it is
nested. Each of these questions to Python runs through code that a convolution has driven out of all
caches, so that together they cost more than all else the engine does. The answers stand side by
side in the tensor and are read in place, as a node's bookkeeping is
(:mod:`agviz_engine.native_node`), and by the same rule: their place is found by an experiment.

Only plain tensors are known here: strided, in the CPU's memory, of up to five dimensions, with
nothing in their dispatch keys that an ordinary tensor does not have.
"""

from __future__ import annotations

import functools
import itertools
import struct
from operator import mul
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor
from torch._prims_common import is_non_overlapping_and_dense_or_false
from torch.nn import Parameter

from agviz_engine import support
from agviz_engine.checked_memory import words
from agviz_engine.native_node import BYTES, MEMORY, POINTER, tensor_base

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz_engine.errors import UnsupportedTorchError

DIMENSIONS = 5
"""As many sizes and strides are kept in the tensor itself."""
_dispatch_keys = cast("Any", torch._C)._dispatch_keys
_WORD = 8
_SEARCHED = 16  # words
_OFFSET_AND_NUMEL = 2  # words between the strides and the dtype
_DTYPE, _KEYS = 1 + 2 * DIMENSIONS + _OFFSET_AND_NUMEL, 2 + 2 * DIMENSIONS + _OFFSET_AND_NUMEL
_CODE = 0xFFFF  # of the dtype's word; device and flags follow, with bits that nobody sets
_DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.complex64,
    torch.complex128,
)
_SHAPES_KEPT = 4096
_T = TypeVar("_T")
_HOLDERS = 2**32 - 1
_REFERENCES_SEARCHED = 4  # words


class ImplLayout(NamedTuple):
    """How the ``TensorImpl`` of a plain tensor lies in memory."""

    sizes: int
    """Byte at which the number of dimensions stands; sizes, strides and the rest follow."""
    keys: int
    """Its dispatch keys, as one number."""
    dtypes: dict[int, torch.dtype]
    """Those of gradients, by ``ScalarType`` number."""
    storage: int
    """Word that points to the ``StorageImpl``."""
    references: int
    """Word of a ``StorageImpl`` whose low 32 bits count its holders."""


def _size_word(*shape: int) -> list[int]:
    """Where the number of dimensions stands, with sizes, strides and the rest behind it."""
    tensor = torch.empty(2, *shape, device="cpu")[1]
    dimensions, all_words = len(shape), words(tensor_base(tensor), _SEARCHED + _DTYPE)
    found = []
    for i in range(_SEARCHED):
        here = all_words[i : i + _DTYPE]
        strides = here[1 + DIMENSIONS :][:dimensions]
        if (here[0], here[1 : 1 + dimensions], strides, here[-2:]) == (
            dimensions,
            list(shape),
            list(tensor.stride()),
            [tensor.numel(), tensor.numel()],
        ):
            found.append(i)
    return found


@functools.cache
def calibrate() -> ImplLayout:
    """Find how a tensor lies in memory; once per process.

    Raises:
        UnsupportedTorchError: this torch keeps it in another way.
    """
    found = _size_word(7, 11, 13)
    if len(found) != 1 or _size_word(2, 3, 5, 7, 11) != found or _size_word(17) != found:
        raise _refusal("the sizes")

    def word(tensor: Tensor, number: int) -> int:
        return words(tensor_base(tensor) + found[0] + number, 1)[0]

    tensor = torch.ones(2, 3, dtype=torch.float32, device="cpu")
    plain = [tensor, tensor.t(), tensor[1:], Parameter(tensor), tensor.double()]
    keys = {word(each, _KEYS) for each in plain}
    for each in (*plain, tensor.to("meta"), tensor.to(torch.complex64).conj()):
        if word(each, _KEYS) != _dispatch_keys(each).raw_repr():
            raise _refusal("the dispatch keys")
    if len(keys) != 1:
        raise _refusal("the dispatch keys")
    dtypes = {word(tensor.to(dtype), _DTYPE) & _CODE: dtype for dtype in _DTYPES}
    if len(dtypes) != len(_DTYPES):
        raise _refusal("the dtype")
    storage = _storage_word(found[0])
    return ImplLayout(found[0] * _WORD, keys.pop(), dtypes, storage, _reference_word(storage))


def _storage_word(end: int) -> int:
    tensor = torch.ones(2, device="cpu")
    storage = tensor.untyped_storage()._cdata
    found = [i for i, word in enumerate(words(tensor_base(tensor), end)) if word == storage]
    if len(found) != 1:
        raise _refusal("the storage")
    return found[0]


def _reference_word(storage: int) -> int:
    tensor = torch.ones(2, device="cpu")
    begin = words(tensor_base(tensor) + storage, 1)[0] // _WORD
    counts = []
    views: list[Tensor] = []
    for _ in range(4):
        counts.append([word & _HOLDERS for word in words(begin, _REFERENCES_SEARCHED)])
        views.append(tensor[:1])
    found = [i for i, count in enumerate(zip(*counts, strict=True)) if count == (1, 2, 3, 4)]
    if len(found) != 1:
        raise _refusal("the number of holders")
    return found[0]


def _refusal(what: str) -> UnsupportedTorchError:
    return support.refusal(f"{what} of a tensor was not found in its TensorImpl")


SIZES, PLAIN_KEYS, DTYPES, STORAGE, _REFERENCES = calibrate()
_SIZES = DIMENSIONS * _WORD  # bytes
unpack_tensor = cast(
    "Callable[[memoryview, int], tuple[int, bytes, bytes, int, int]]",
    struct.Struct(f"=Q{_SIZES}s{_SIZES}s{_OFFSET_AND_NUMEL * _WORD}xH6xQ").unpack_from,
)
"""Number of dimensions, sizes and strides as they lie in memory, number of the dtype, keys."""
read_block = cast(
    "Callable[[memoryview, int], tuple[bytes]]",
    struct.Struct(f"={(_KEYS + 1) * _WORD}s").unpack_from,
)
"""All that in one piece, with the numbers behind the last dimension, which mean nothing.

Equal blocks are those of tensors that are alike; most that are alike have equal ones. So a block
that was looked through once need not be again.
"""
_contiguous: dict[bytes, bytes] = {}
"""Strides by sizes."""
_contiguous_blocks: set[tuple[bytes]] = set()
"""Those of plain, contiguous tensors."""


def remember(found: set[_T], what: _T) -> bool:
    """Put ``what`` into a set that does not grow for ever; True."""
    if len(found) >= _SHAPES_KEPT:
        found.clear()
    found.add(what)
    return True


def has_own_storage(tensor: Tensor) -> bool:
    """Whether no other tensor has the storage of this one, which must have one."""
    return MEMORY[(MEMORY[tensor_base(tensor) + STORAGE] >> 3) + _REFERENCES] & _HOLDERS == 1


def are_alike(gradient: Tensor, variable: Tensor) -> bool:
    """Whether both are plain, contiguous and alike in dtype and shape. False says nothing.

    Both must be of type Tensor itself or Parameter.
    """
    address = MEMORY[(id(gradient) >> 3) + POINTER] + SIZES
    other = MEMORY[(id(variable) >> 3) + POINTER] + SIZES
    block = read_block(BYTES, address)
    if block != read_block(BYTES, other):
        return _are_alike(address, other)
    return block in _contiguous_blocks or (
        _are_alike(address, other) and remember(_contiguous_blocks, block)
    )


def _are_alike(address: int, other: int) -> bool:
    dimensions, sizes, strides, code, keys = unpack_tensor(BYTES, address)
    theirs = unpack_tensor(BYTES, other)
    if keys != PLAIN_KEYS or dimensions > DIMENSIONS:
        return False
    end = dimensions << 3
    sizes, strides = sizes[:end], strides[:end]
    return (dimensions, sizes, strides, code, keys) == (
        theirs[0],
        theirs[1][:end],
        theirs[2][:end],
        *theirs[3:],
    ) and strides == (_contiguous.get(sizes) or _contiguous_strides(sizes))


def fits_into(gradient: Tensor, tensor: Tensor) -> bool:
    """Whether both are plain and alike in dtype and shape, and ``tensor`` is dense.

    Both must be of type Tensor itself or Parameter. False says nothing.
    """
    ours = unpack_tensor(BYTES, MEMORY[(id(gradient) >> 3) + POINTER] + SIZES)
    theirs = unpack_tensor(BYTES, MEMORY[(id(tensor) >> 3) + POINTER] + SIZES)
    dimensions, keys = theirs[0], theirs[-1]
    if keys != PLAIN_KEYS or dimensions > DIMENSIONS:
        return False
    end = dimensions << 3
    sizes = theirs[1][:end]
    return (dimensions, sizes, *theirs[3:]) == (ours[0], ours[1][:end], *ours[3:]) and (
        theirs[2][:end] == _contiguous_strides(sizes)
        or is_non_overlapping_and_dense_or_false(tensor)
    )


def _contiguous_strides(sizes: bytes) -> bytes:
    """Of a contiguous tensor, where the strides of dimensions of size 1 are the usual ones."""
    strides = _contiguous.get(sizes)
    if strides is None:
        if len(_contiguous) >= _SHAPES_KEPT:
            _contiguous.clear()
        words = struct.Struct(f"={len(sizes) // _WORD}Q")
        shape = words.unpack(sizes)
        steps = itertools.accumulate((max(size, 1) for size in shape[:0:-1]), mul, initial=1)
        strides = _contiguous[sizes] = words.pack(*reversed(tuple(steps))) if shape else b""
    return strides
