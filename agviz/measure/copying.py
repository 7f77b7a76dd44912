"""Copies of gradients as bytes, for instruments that keep what flowed.

A gradient may be written to as soon as its instrument has returned, so it is copied at once. Like
measuring it, that must not be felt: everything here is called within
:func:`agviz.measure.health.unseen`, and the bytes are Python's own, so that neither torch's
allocator nor a profiler of its memory sees them. A copy from another device is made on the current
stream and is complete when the call returns.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from agviz.measure.health import name_of, same_memory, shape_of, unwrapped, why_unknown
from agviz_engine.errors import comes_from_outside
from agviz_engine.tensor_facts import COMPRESSED

if TYPE_CHECKING:
    from torch import Tensor

COPIED: Final = frozenset(
    {
        *(torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64),
        *(torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
        *(torch.complex32, torch.complex64, torch.complex128),
        *(torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz),
        *([torch.float8_e8m0fnu] if hasattr(torch, "float8_e8m0fnu") else ()),  # from 2.7 on
    }
)
"""Dtypes of which every element is a whole number of bytes that mean the same everywhere."""
_NESTED: Final = "torch.nested._internal.nested_tensor"


class Identity(NamedTuple):
    """Strided gradients of equal identity have equal contents. Note [Views are measured once]."""

    storage: int
    """Address of the storage, which ``pin`` keeps from being used for another."""
    state: tuple[Any, ...]
    pin: StorageWeakRef

    def is_that_of(self, other: Identity) -> bool:
        """Whether the contents are equal for sure."""
        return self.storage == other.storage and self.state == other.state


class Parts(NamedTuple):
    """The strided tensors that a gradient consists of."""

    dtype: str
    """Without ``torch.``, as ``layout``; of the values."""
    shape: tuple[int | None, ...] | None
    """None: not known; in it: the ragged dimension of a jagged tensor."""
    layout: str
    coalesced: bool
    """Whether it is a sparse_coo tensor that says of itself that it is."""
    parts: tuple[tuple[str, Tensor], ...]
    """Their names and the tensors. A strided gradient has ``values`` only; the dimensions in which
    it is expanded have size 1 there."""
    unknown: str
    """Why there are none; empty where there are."""
    identity: Identity | None = None
    """None: nothing shows for sure whether its contents are those of another gradient."""

    @property
    def nbytes(self) -> int:
        """Bytes that copies of all parts take up."""
        return sum(part.nbytes for _, part in self.parts)


def parts(gradient: Tensor) -> Parts:
    """What has to be copied of a gradient of any dtype, layout and kind.

    Does not raise: where it can't be read, ``unknown`` says why.
    """
    try:
        gradient = unwrapped(gradient)
        found = Parts(
            dtype=name_of(gradient.dtype),
            shape=shape_of(gradient),
            layout=name_of(gradient.layout),
            coalesced=False,
            parts=(),
            unknown=_why_not(gradient),
        )
        return found if found.unknown else _filled(found, gradient)
    except Exception as error:
        if comes_from_outside(error):
            raise
        return Parts("", None, "", coalesced=False, parts=(), unknown=type(error).__name__)


def contents(part: Tensor) -> bytearray:
    """A copy of all elements of a strided tensor in order of their indices, little-endian."""
    copy = bytearray(part.nbytes)
    if copy:
        torch.frombuffer(copy, dtype=part.dtype).view(part.shape).copy_(part)
    return copy


def _is_jagged(gradient: Tensor) -> bool:
    nested = getattr(sys.modules.get(_NESTED), "NestedTensor", None)
    return nested is not None and type(gradient) is nested


def _why_not(gradient: Tensor) -> str:
    if sys.byteorder != "little":
        return "on a big-endian machine"
    why = "" if _is_jagged(gradient) else why_unknown(gradient)
    if not why and gradient.dtype not in COPIED:
        return f"of dtype {name_of(gradient.dtype)}"
    return why


def _filled(found: Parts, gradient: Tensor) -> Parts:
    named: dict[str, Tensor]
    if _is_jagged(gradient):
        return _filled_jagged(found, gradient)
    if gradient.layout is torch.strided:
        named = {"values": _narrowed(gradient)}
        found = found._replace(identity=_identity(gradient))
    elif gradient.is_sparse:
        named = {"indices": gradient._indices(), "values": gradient._values()}
        found = found._replace(coalesced=gradient.is_coalesced())
    else:
        named = {part: getattr(gradient, part)() for part in COMPRESSED[gradient.layout]}
    return found._replace(parts=tuple(named.items()))


def _filled_jagged(found: Parts, gradient: Tensor) -> Parts:
    jagged = cast("Any", gradient)
    values, offsets, lengths = jagged._values, jagged._offsets, jagged._lengths
    named = {"offsets": offsets, "lengths": lengths, "values": values}
    given = tuple((name, part) for name, part in named.items() if part is not None)
    for _, part in given:
        if why := why_unknown(part):
            return found._replace(unknown=f"of {why}")
    sizes: list[int | None] = [offsets.numel() - 1, *values.shape]
    sizes[jagged._ragged_idx] = None
    return found._replace(shape=tuple(sizes), parts=given)


def _identity(gradient: Tensor) -> Identity | None:
    state = same_memory(gradient)
    if state is None:
        return None
    storage = gradient.untyped_storage()
    order = () if gradient.is_contiguous() else (gradient.shape, gradient.stride())
    return Identity(storage._cdata, (*state, *order), StorageWeakRef(storage))


def _narrowed(tensor: Tensor) -> Tensor:
    """One of each dimension in which it is expanded."""
    for dimension, stride in enumerate(tensor.stride()):
        if not stride and tensor.shape[dimension] > 1:
            tensor = tensor.narrow(dimension, 0, 1)
    return tensor
