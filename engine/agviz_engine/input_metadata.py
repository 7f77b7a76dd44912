"""What a node expects of the gradients that reach it (``torch/csrc/autograd/input_metadata.h``).

Python shows shape, dtype and device of an input, at a microsecond, but neither its layout, nor
``grad_dtype``, nor whether the input is ever defined. The struct is read in place, as the rest of
the node (:mod:`agviz_engine.native_node`), and by the same rule: every position is found by an
experiment first.
"""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor

from agviz_engine import native_node, support
from agviz_engine.checked_memory import words
from agviz_engine.native_node import BYTES, MEMORY, POINTER
from agviz_engine.tensor_impl import (
    DTYPES,
    PLAIN_KEYS,
    SIZES,
    read_block,
    remember,
    unpack_tensor,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.autograd.graph import Node

    from agviz_engine.errors import UnsupportedTorchError
    from agviz_engine.node import NodeRef

_WORD = 8
_TEXTS_KEPT = 4096
_LARGEST_SIZE = 2**62 - 1
"""A word with a higher bit set points to a symbol (``c10/core/SymInt.h``)."""
_LIMIT = 24  # words; the struct has 12
_SHAPE_POINTER, _SHAPE_SIZE, _SHAPE_INLINE = 1, 2, 3  # SmallVector<SymInt, 5> behind the options
_INLINE_DIMENSIONS = 5
_TAIL_MASK = 2**40 - 1  # what follows is padding
_LAYOUTS = {  # enum Layout, c10/core/Layout.h
    0: torch.strided,
    1: torch.sparse_coo,
    2: torch.sparse_csr,
    3: cast("Any", torch)._mkldnn,
    4: torch.sparse_csc,
    5: torch.sparse_bsr,
    6: torch.sparse_bsc,
    7: torch.jagged,
}


class Kind(NamedTuple):
    """All that an input expects but the shape; inputs of one kind share one object."""

    dtype: torch.dtype | None
    """``grad_dtype_``; None where any dtype will do."""
    input_dtype: torch.dtype
    device: torch.device
    layout: torch.layout
    is_tensor_subclass: bool
    is_nested: bool
    is_cpu: bool
    is_defined: bool
    """False for an output of the forward that was not a tensor (``was_default_constructed_``)."""


class InputStream(NamedTuple):
    """The stream on which the forward made the tensor of an input (``stream_``)."""

    device: torch.device
    device_type_number: int
    stream_id: int


class MetadataLayout(NamedTuple):
    """How the array of ``InputMetadata`` lies in memory, in words of 8 bytes."""

    array: int
    """Word of the node that points to it."""
    stride: int


def _refusal(what: str) -> UnsupportedTorchError:
    return support.refusal(f"{what} was not found in a node's input metadata")


@functools.cache
def calibrate() -> MetadataLayout:
    """Find how the metadata lies in memory; once per process.

    Raises:
        UnsupportedTorchError: this torch keeps it in another way.
    """
    array = native_node.calibrate().num_inputs - 1
    with torch.enable_grad():
        node = cast("Node", torch.ones(6, requires_grad=True).split(2)[0].grad_fn)
    stride = _stride(words(native_node.base(node) + array, 1)[0])
    layout = MetadataLayout(array, stride)
    for code, dtype in DTYPES.items():
        with torch.enable_grad():
            leaf = torch.empty(1, dtype=dtype, requires_grad=True)
            accumulator = torch.autograd.graph.get_gradient_edge(leaf).node
        begin = words(native_node.base(accumulator) + array, 1)[0] // _WORD
        metadata = words(begin, stride)
        if metadata[0] >> 16 & 0xFFFF != code:
            raise _refusal("the dtype")
        if metadata[-3] & 0xFFFF != metadata[0] & 0xFFFF:
            raise _refusal("the stream")
        if metadata[-1] >> 24 & 0xFFFF != code | 1 << 8:
            raise _refusal("grad_dtype")
    _check_undefined(layout)
    return layout


def _stride(address: int) -> int:
    found = words(address // _WORD, 2 * _LIMIT)
    if found[_SHAPE_POINTER] != address + _SHAPE_INLINE * _WORD or found[_SHAPE_INLINE] != 2:
        raise _refusal("the shape")
    for stride in range(_SHAPE_INLINE + _INLINE_DIMENSIONS, _LIMIT):
        inline = address + (stride + _SHAPE_INLINE) * _WORD
        if found[stride + _SHAPE_POINTER] == inline and found[stride] == found[0]:
            return stride
    raise _refusal("the size")


class _Mixed(torch.autograd.Function):
    @staticmethod
    def forward(_ctx: Any, value: Tensor) -> tuple[int, Tensor]:
        return 1, value.clone()

    @staticmethod
    def backward(_ctx: Any, *gradients: Any) -> Any:
        return gradients[1]


def _check_undefined(layout: MetadataLayout) -> None:
    with torch.enable_grad():
        output = cast("Any", _Mixed).apply(torch.ones(2, requires_grad=True))[1]
    node = native_node.base(output.grad_fn, native_node.calibrate().function_cdata)
    begin = words(node + layout.array, 1)[0] // _WORD
    both = words(begin, 2 * layout.stride)
    if [both[layout.stride - 1] >> 16 & 0xFF, both[-1] >> 16 & 0xFF] != [1, 0]:
        raise _refusal("whether an input is defined")


_LAYOUT = calibrate()
ARRAY, STRIDE = _LAYOUT.array, _LAYOUT.stride
_TAIL = STRIDE - 1
_BYTES_EACH = STRIDE * _WORD
_unpack = cast(
    "Callable[[memoryview, int], tuple[bytes, int, bytes, bytes]]",
    struct.Struct(
        # options, number of dimensions, the first of them, what _TAIL_MASK leaves of the tail
        f"=8s8xI4x{_INLINE_DIMENSIONS * _WORD}s"
        f"{(_TAIL - _SHAPE_INLINE - _INLINE_DIMENSIONS) * _WORD}x5s"
    ).unpack_from,
)
_kinds: dict[tuple[int, int], Kind] = {}


def expectation(ref: NodeRef, slot: int) -> tuple[Kind, tuple[int, ...] | None]:
    """Kind and shape of the input ``slot`` of a node.

    The shape is None where it is not made of plain numbers: nested tensors.
    """
    begin = (MEMORY[ref.base + ARRAY] >> 3) + slot * STRIDE
    options, tail = MEMORY[begin], MEMORY[begin + _TAIL] & _TAIL_MASK
    kind = _kinds.get((options, tail))
    if kind is None:
        kind = _kinds[options, tail] = _kind(ref.node, slot, options, tail)
        is_plain = kind.layout is torch.strided and not (kind.is_nested or kind.is_tensor_subclass)
        if is_plain and kind.is_cpu and kind.dtype in _CODES:
            facts = _unpack(BYTES, begin * _WORD)
            _plain[facts[0], facts[-1]] = _CODES[kind.dtype]
    if kind.is_nested:
        return kind, None
    size = MEMORY[begin + _SHAPE_SIZE] & 0xFFFFFFFF
    begin = (
        begin + _SHAPE_INLINE if size <= _INLINE_DIMENSIONS else MEMORY[begin + _SHAPE_POINTER] >> 3
    )
    return kind, tuple(MEMORY[begin : begin + size])


_CODES: dict[torch.dtype | None, int] = {dtype: code for code, dtype in DTYPES.items()}
_plain: dict[tuple[bytes, bytes], int] = {}
"""``ScalarType`` number of the kinds that :func:`fits_plainly` can judge."""
_texts: dict[tuple[bytes, int, bytes, bytes], str] = {}
"""Of the only shape, by what lies in memory."""
_fitting: set[tuple[Any, tuple[bytes]]] = set()
"""What was found to fit: of metadata and of a tensor, all that is asked for it."""
_reduced: dict[tuple[Any, tuple[bytes]], tuple[int, ...]] = {}
"""The same, where only the shape differs: what is expected."""


def fits_plainly(ref: NodeRef, slot: int, gradient: Tensor) -> bool:
    """Whether ``gradient`` is just what the input expects, for the usual kind of tensors.

    False says nothing: subclasses, whose sizes may be symbols that a look would pin down, nested
    and sparse tensors and those of an accelerator are not judged.
    """
    if type(gradient) is not Tensor:
        return False
    address = MEMORY[(id(gradient) >> 3) + POINTER] + SIZES
    expected = _unpack(BYTES, MEMORY[ref.base + ARRAY] + slot * _BYTES_EACH)
    facts = expected, read_block(BYTES, address)
    return facts in _fitting or (_do_fit(expected, address) and remember(_fitting, facts))


def reduced_shape(ref: NodeRef, slot: int, gradient: Tensor) -> tuple[int, ...] | None:
    """The shape to which ``gradient`` is summed down, where it differs in nothing else.

    None says nothing, as False of :func:`fits_plainly`. A broadcast bias has such a gradient in
    every pass: to ask for its metadata costs several times what the sum does.
    """
    if type(gradient) is not Tensor:
        return None
    address = MEMORY[(id(gradient) >> 3) + POINTER] + SIZES
    expected = _unpack(BYTES, MEMORY[ref.base + ARRAY] + slot * _BYTES_EACH)
    facts = expected, read_block(BYTES, address)
    shape = _reduced.get(facts)
    if shape is None and _differs_in_shape(expected, address):
        shape = expectation(ref, slot)[1]
        if shape is not None:
            if len(_reduced) >= _TEXTS_KEPT:
                _reduced.clear()
            _reduced[facts] = shape
    return shape


def _differs_in_shape(expected: tuple[bytes, int, bytes, bytes], address: int) -> bool:
    options, dimensions, _, tail = expected
    own_dimensions, _, _, code, keys = unpack_tensor(BYTES, address)
    return (
        _plain.get((options, tail)) == code
        and keys == PLAIN_KEYS
        and max(dimensions, own_dimensions) <= _INLINE_DIMENSIONS
        and not _do_fit(expected, address)
    )


def _do_fit(expected: tuple[bytes, int, bytes, bytes], address: int) -> bool:
    options, dimensions, sizes, tail = expected
    own_dimensions, own_sizes, _, code, keys = unpack_tensor(BYTES, address)
    end = dimensions << 3
    return (
        own_dimensions == dimensions
        and _plain.get((options, tail)) == code
        and own_sizes[:end] == sizes[:end]
        and keys == PLAIN_KEYS
        and dimensions <= _INLINE_DIMENSIONS
    )


def shapes_text(ref: NodeRef) -> str:
    """The shapes of all inputs, like ``[3, 4];[5]``; empty where they are not known."""
    if ref.num_inputs != 1 or not ref.base:
        return _asked(ref)
    facts = _unpack(BYTES, MEMORY[ref.base + ARRAY])
    return _texts.get(facts) or _text(ref, facts)


def _text(ref: NodeRef, facts: tuple[bytes, int, bytes, bytes]) -> str:
    options, dimensions, _, tail = facts
    _, shape = expectation(ref, 0)  # which makes its kind known
    is_plain = (options, tail) in _plain and dimensions <= _INLINE_DIMENSIONS
    if not is_plain or shape is None or any(size > _LARGEST_SIZE for size in shape):
        return _asked(ref)
    if len(_texts) >= _TEXTS_KEPT:
        _texts.clear()
    text = _texts[facts] = str(list(shape))
    return text


def _asked(ref: NodeRef) -> str:
    try:
        shapes = ";".join([str(metadata.shape) for metadata in ref.node._input_metadata])
    except (AttributeError, RuntimeError):
        return ""  # a GraphRoot has none, and torch can't tell that of a strided nested tensor
    has_symbols = shapes.lower() != shapes.upper()  # "[2, j1, 3]" is a jagged tensor's
    return "" if has_symbols else shapes


def stream_of(ref: NodeRef, slot: int) -> InputStream:
    """The stream of the input ``slot`` of a node; that of a CPU input means nothing."""
    kind, _ = expectation(ref, slot)
    begin = (MEMORY[ref.base + ARRAY] >> 3) + slot * STRIDE
    device, stream_id = MEMORY[begin + STRIDE - 3], MEMORY[begin + STRIDE - 2]
    return InputStream(kind.device, device >> 8 & 0xFF, stream_id)


def _kind(node: Node, slot: int, options: int, tail: int) -> Kind:
    metadata = cast("Any", node)._input_metadata[slot]
    input_dtype = DTYPES.get(options >> 16 & 0xFFFF, metadata.dtype)
    has_dtype = tail >> 32 & 0xFF
    return Kind(
        dtype=DTYPES.get(tail >> 24 & 0xFF, input_dtype) if has_dtype else None,
        input_dtype=input_dtype,
        device=metadata.device,
        layout=_LAYOUTS.get(options >> 32 & 0xFF, torch.strided),
        is_tensor_subclass=bool(tail & 0xFF),
        is_nested=bool(tail >> 8 & 0xFF),
        is_cpu=metadata.device.type == "cpu",
        is_defined=not tail >> 16 & 0xFF,
    )
