"""The data of the program: what its outermost modules were given.

Tensors are known weakly, so that none lives longer for it. Which of their elements a tensor has is
read from memory: reshaping, slicing and transposing data makes no node that could be asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from agviz.record.elements.box import Axis, Box, at, elements, mixed, reshaped
from agviz_engine.tensor_facts import storage_address

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

GivenTensors: TypeAlias = "list[tuple[Tensor, bool]]"
"""The last one first, each with whether the module that was given it has parameters."""
_MOST: Final = 1 << 24
"""Elements that are compared with others."""


def in_given(data: Tensor, box: Box, given: GivenTensors) -> tuple[int, Box] | None:
    """Which tensor of the program some data is, and where in it the elements are; None: of none."""
    for how in (_elements_in, _elements_of_copy):
        for number, (tensor, _) in enumerate(given):
            found = how(data, box, tensor)
            if found is not None:
                return number, found
    return None


def shape_of_data(data: Tensor) -> tuple[int, ...] | None:
    """The shape of what some data is a view of; None where it is only a part of that."""
    base = data._base
    if base is None:
        return tuple(data.shape)
    is_all = base.numel() == data.numel() and base.is_contiguous() and data.is_contiguous()
    return tuple(base.shape) if is_all else None


def _elements_in(data: Tensor, box: Box, tensor: Tensor) -> Box | None:
    if data.device != tensor.device or data.dtype != tensor.dtype:
        return None
    if not storage_address(data) or storage_address(data) != storage_address(tensor):
        return None
    sizes, begin = tuple(tensor.shape), tensor.storage_offset()
    is_here = begin == data.storage_offset()
    if is_here and sizes == tuple(data.shape) and tensor.stride() == data.stride():
        return box
    if (
        is_here
        and tensor.is_contiguous()
        and data.is_contiguous()
        and tensor.numel() == data.numel()
    ):
        return reshaped(box, sizes)
    return _by_memory(data, box, tensor)


def _elements_of_copy(data: Tensor, box: Box, tensor: Tensor) -> Box | None:
    """The same where it is a copy, as autocast makes, or one with steps before samples."""
    if data.numel() != tensor.numel() or not 1 < data.numel() <= _MOST:
        return None
    if data.device != tensor.device or bool((data == data.reshape(-1)[0]).all()):
        return None
    if _are_equal(data, tensor):
        return reshaped(box, tuple(tensor.shape))
    exchanged = tensor.transpose(0, 1) if tensor.dim() > 1 else tensor
    found = reshaped(box, tuple(exchanged.shape)) if _are_equal(data, exchanged) else None
    return None if found is None else (found[1], found[0], *found[2:])


def _are_equal(data: Tensor, tensor: Tensor) -> bool:
    own, others = data.reshape(-1), tensor.detach().reshape(-1).to(data.dtype)
    return bool(((own == others) | (own.isnan() & others.isnan())).all())


def _by_memory(data: Tensor, box: Box, tensor: Tensor) -> Box | None:
    """By the addresses of elements; None: they are not of the tensor, or too many."""
    sizes = tuple(tensor.shape)
    first = _place(tensor, int(data.storage_offset()))
    if first is None:
        return None
    found = {dim: at(size, [first[dim]]) for dim, size in enumerate(sizes)}
    moved: set[int] = set()
    for axis, step in zip(box, data.stride(), strict=True):
        if axis.size == 1:
            continue
        dim = _axis_of(tensor, step, axis.size, first)
        if dim is None or dim in moved:
            return _one_by_one(data, box, tensor)
        moved.add(dim)
        times, begin = step // tensor.stride(dim), first[dim]
        found[dim] = Axis(sizes[dim], None, axis.origin)
        if axis.at is not None:
            found[dim] = axis.moved(sizes[dim], (begin + times * each for each in axis.at))
    return tuple(found.values())


def _axis_of(tensor: Tensor, step: int, count: int, first: Sequence[int]) -> int | None:
    """The axis of a tensor along which steps of memory go."""
    fit = [
        dim
        for dim, own in enumerate(tensor.stride())
        if tensor.shape[dim] > 1
        and own
        and step % own == 0
        and first[dim] + (count - 1) * (step // own) < tensor.shape[dim]
    ]
    return max(fit, key=tensor.stride, default=None)


def _one_by_one(data: Tensor, box: Box, tensor: Tensor) -> Box | None:
    wanted = elements(box)
    if wanted is None:
        return None
    places = []
    for each in wanted:
        steps = zip(each, data.stride(), strict=True)
        offset = int(data.storage_offset()) + sum(i * step for i, step in steps)
        place = _place(tensor, offset)
        if place is None:
            return None
        places.append(place)
    return tuple(
        mixed(size) if len(set(column)) == size else at(size, column)
        for size, column in zip(tensor.shape, zip(*places, strict=True), strict=True)
    )


def _place(tensor: Tensor, offset: int) -> list[int] | None:
    """The coordinates of what lies at an offset in a tensor's storage; None: nothing of it."""
    offset -= int(tensor.storage_offset())
    place = [0] * tensor.dim()
    order = [dim for dim, size in enumerate(tensor.shape) if size > 1]
    for dim in sorted(order, key=tensor.stride, reverse=True):
        if not tensor.stride(dim):
            return None
        place[dim], offset = divmod(offset, tensor.stride(dim))
        if not 0 <= place[dim] < tensor.shape[dim]:
            return None
    return None if offset else place
