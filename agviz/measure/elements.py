"""The numbers of all elements of a gradient: those of a :class:`~agviz.measure.values.Health`.

A dense gradient of float32 or float64 on the CPU is gone through once, by compiled code where that
is there (:mod:`agviz.measure.kernel`). All others are asked with torch's reductions, in
chunks that stay in the processor's cache while they are asked five questions; only a chunk of a
type that can't be reduced exactly as it is (float16, bfloat16, ...) is copied. ``amin`` and
``amax`` pass NaN and infinities on, so that they are counted only where there are any.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor

from agviz.measure import device_kernel, kernel
from agviz_engine.dense import is_dense

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

FEW = 16
"""Up to so many elements, Python is quicker than five calls of torch."""
_CHUNK = 1 << 17
_CHUNK_ON_DEVICE = 1 << 24
_ROW = 1 << 11
_SCRATCH_PAYS = 1 << 14
_SUMMABLE = {torch.float32: (1e-12, 1e15), torch.float64: (1e-140, 1e140)}
"""Between these magnitudes a chunk's squares neither overflow nor vanish."""
_WIDENED = {torch.int64, torch.int32, torch.uint32, torch.uint64}
"""Dtypes of which float32 does not hold every value."""
_thread = threading.local()


class PartNumbers(NamedTuple):
    """Some of the elements."""

    numbers: int
    nan: int = 0
    posinf: int = 0
    neginf: int = 0
    finite: int = 0
    zero: int = 0
    min: float = math.inf
    max: float = -math.inf
    mean: float = 0.0
    norm: float = 0.0


def numbers_of(gradient: Tensor) -> PartNumbers:
    """The numbers of all elements of a gradient of any layout; call it within ``unseen``."""
    return _combined(_parts(gradient))


def repeated(found: tuple[Any, ...], times: int) -> tuple[Any, ...]:
    """What is found in elements each of which is there several times.

    Args:
        found: the fields of a :class:`PartNumbers` but for the first.
        times: how often each is there.
    """
    *counts, low, high, mean, norm = found
    return *(times * count for count in counts), low, high, mean, norm * math.sqrt(times)


def _combined(parts: Iterator[PartNumbers]) -> PartNumbers:
    first = next(parts, PartNumbers(0))
    more = list(parts)
    if not more:
        return first
    found = [first, *more]
    finite = sum(part.finite for part in found)
    return PartNumbers(
        numbers=sum(part.numbers for part in found),
        nan=sum(part.nan for part in found),
        posinf=sum(part.posinf for part in found),
        neginf=sum(part.neginf for part in found),
        zero=sum(part.zero for part in found),
        finite=finite,
        min=min(part.min for part in found),
        max=max(part.max for part in found),
        mean=math.fsum(part.mean * (part.finite / finite) for part in found) if finite else 0.0,
        norm=math.hypot(*(part.norm for part in found)),
    )


def _parts(gradient: Tensor) -> Iterator[PartNumbers]:
    """The elements, part by part; the order does not matter."""
    if gradient.layout is not torch.strided:
        gradient = gradient._values() if gradient.is_sparse else gradient.values()
    if not gradient.numel():
        return
    if gradient._is_zerotensor():  # torch has no memory for it
        count = (2 if gradient.is_complex() else 1) * gradient.numel()
        yield PartNumbers(count, zero=count, finite=count, min=0.0, max=0.0)
        return
    repeats = 1
    for dimension, stride in enumerate(gradient.stride()):
        if not stride:  # expanded: one of them represents all
            repeats *= gradient.shape[dimension]
            gradient = gradient.narrow(dimension, 0, 1)
    for chunk in _chunks(gradient):
        if chunk.is_complex():
            chunk = torch.view_as_real(chunk.resolve_conj()).reshape(-1)  # noqa: PLW2901
        part = _of_chunk(chunk)
        if repeats > 1:
            part = PartNumbers(repeats * part.numbers, *repeated(part[1:], repeats))
        yield part


def _of_chunk(chunk: Tensor) -> PartNumbers:
    if chunk.numel() > FEW and device_kernel.serves(chunk):
        return PartNumbers(chunk.numel(), *device_kernel.measured(chunk))
    if chunk.dtype not in _SUMMABLE and chunk.numel() > FEW:
        chunk = chunk.to(torch.float64 if chunk.dtype in _WIDENED else torch.float32)
    if kernel.serves(chunk):
        return PartNumbers(chunk.numel(), *kernel.measured(chunk))
    return _few(chunk.tolist()) if chunk.numel() <= FEW else _many(chunk)


def _chunks(gradient: Tensor) -> Iterator[Tensor]:
    """One-dimensional tensors with all elements; views where the elements lie side by side."""
    numel = gradient.numel()
    if gradient.is_neg():
        gradient = gradient.resolve_neg()
    if kernel.serves(gradient):
        size = numel
    else:
        size = _CHUNK if gradient.device.type == "cpu" else _CHUNK_ON_DEVICE
        if device_kernel.serves(gradient):
            size = device_kernel.LARGEST
        if gradient.is_complex():
            size //= 2
    if gradient.is_contiguous():
        flat = gradient.view(-1)
    elif is_dense(gradient):
        flat = gradient.as_strided((numel,), (1,))
    else:
        longest = max(range(gradient.dim()), key=lambda d: gradient.shape[d])
        step = max(1, size * gradient.shape[longest] // numel)
        for piece in gradient.split(step, longest):
            yield from piece.reshape(-1).split(size)
        return
    if numel <= size:
        yield flat
    else:
        yield from flat.split(size)


def is_apart(tensor: Tensor) -> bool:
    """Whether each element has memory of its own, as far as sizes and strides show."""
    end = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride < end:
                return False
            end += stride * (size - 1)
    return True


def _few(values: list[float]) -> PartNumbers:
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) == len(values):
        return _finite_few(values)
    return _finite_few(finite)._replace(
        numbers=len(values),
        nan=sum(map(math.isnan, values)),
        posinf=values.count(math.inf),
        neginf=values.count(-math.inf),
    )


def _finite_few(values: list[float]) -> PartNumbers:
    count = len(values)
    if not count:
        return PartNumbers(0)
    return PartNumbers(
        count,
        zero=values.count(0),
        finite=count,
        min=float(min(values)),
        max=float(max(values)),
        mean=_mean(values, count),
        norm=math.hypot(*values),
    )


def _mean(values: Iterable[float], count: int) -> float:
    values = list(values)
    try:
        return math.fsum(values) / count
    except OverflowError:
        return math.fsum(value / count for value in values)


def _many(chunk: Tensor) -> PartNumbers:
    low, high = _items(torch.amin(chunk), torch.amax(chunk))
    if math.isfinite(low) and math.isfinite(high):
        return _finite(chunk, low, high)
    finite = chunk[torch.isfinite(chunk)]
    part = PartNumbers(0)
    if finite.numel():
        part = _finite(finite, *_items(torch.amin(finite), torch.amax(finite)))
    counts = [torch.count_nonzero(is_so(chunk)) for is_so in _KINDS]
    nan, posinf, neginf = map(int, _items(*counts))
    return part._replace(numbers=chunk.numel(), nan=nan, posinf=posinf, neginf=neginf)


_KINDS = (torch.isnan, torch.isposinf, torch.isneginf)


def _finite(chunk: Tensor, low: float, high: float) -> PartNumbers:
    count = chunk.numel()
    if low == high == 0:
        return PartNumbers(count, zero=count, finite=count, min=low, max=high)
    zeros = [_zeros(chunk)] if low <= 0 <= high else []
    scale = 1.0
    least, most = _SUMMABLE[chunk.dtype]
    magnitude = max(-low, high)
    if not least < magnitude < most:
        scale = magnitude
        chunk = chunk.to(torch.float64) / scale
    total, norm, *zero = _items(torch.sum(chunk), _norm(chunk), *zeros)
    return PartNumbers(
        count,
        zero=int(zero[0]) if zero else 0,
        finite=count,
        min=low,
        max=high,
        mean=total / count * scale,
        norm=norm * scale,
    )


def _norm(chunk: Tensor) -> Tensor:
    """The norm, by way of those of short rows: float32 would lose digits in one long sum."""
    norm: Callable[..., Tensor] = torch.linalg.vector_norm
    count = chunk.numel()
    if count <= _ROW:
        return norm(chunk)
    left = count % _ROW
    whole = norm(norm(chunk[: count - left].view(-1, _ROW), dim=1))
    return torch.hypot(whole, norm(chunk[-left:])) if left else whole


def _zeros(chunk: Tensor) -> Tensor:
    """How many elements are 0; comparing into a buffer of floats is twice as quick as counting."""
    count = chunk.numel()
    if count < _SCRATCH_PAYS or chunk.device.type != "cpu":
        return count - torch.count_nonzero(chunk)
    buffers: dict[Any, Tensor] = _thread.__dict__
    buffer = buffers.get(chunk.dtype)
    if buffer is None:
        buffer = buffers[chunk.dtype] = torch.empty(_CHUNK, dtype=chunk.dtype)
    return torch.sum(torch.eq(chunk, 0, out=buffer[:count]))


def _items(*numbers: Tensor) -> list[float]:
    """The values of several scalars; those on a device are fetched in one go."""
    if numbers[0].device.type == "cpu":
        return [number.item() for number in numbers]
    return cast("list[float]", torch.stack([n.to(torch.float64) for n in numbers]).tolist())
