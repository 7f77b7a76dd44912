"""The health of a gradient: what its elements are like, in a dozen numbers.

All numbers are over the real numbers that are stored: a complex element is two of them, and of a
sparse tensor only the stored values count, coalesced or not. ``min``, ``max``, ``mean`` and
``norm`` leave non-finite elements out, so that they still tell something where one is NaN.

Note [Measuring must not be felt]
Everything runs below autograd, autocast, functorch and the Python modes, and unseen by the
profiler; nothing random is drawn and nothing is written to but a scratch buffer of the thread. A
gradient is taken in chunks that stay in the processor's cache while they are asked five questions;
only a chunk of a type that can't be reduced exactly as it is (float16, bfloat16, ...) is copied.
``amin`` and ``amax`` pass NaN and infinities on, so that they are counted only where there are any.

Note [Views are measured once]
Half of what flows through a model is what another node has just put out, in another shape. Such a
gradient has the same memory, of the same version; what was found for it holds until Python code of
the program may have run (:func:`forget`), which could have changed it behind the version's back.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import threading
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import Parameter

from agviz_engine import native_run
from agviz_engine.instruments import Health
from agviz_engine.recent import Recent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_C = cast("Any", torch._C)
_profiler_enabled = _C._autograd._profiler_enabled
_PLAIN = (Tensor, Parameter)
_FEW = 16
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
_next_generation = itertools.count(1).__next__
_generation = [0]


class _Part(NamedTuple):
    """Some of the elements."""

    numbers: int
    nan: int = 0
    posinf: int = 0
    neginf: int = 0
    zero: int = 0
    finite: int = 0
    min: float = math.inf
    max: float = -math.inf
    mean: float = 0.0
    norm: float = 0.0


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """Note [Measuring must not be felt]; around calls of :func:`measure`."""
    profiled = _profiler_enabled()
    if profiled:
        _C._autograd._enable_record_function(False)
    try:
        with (
            _C._DisableFuncTorch(),
            _C.DisableTorchFunction(),
            _C._DisableTorchDispatch(),
            _C._DisableAutocast(),
            _C._AutoDispatchBelowAutograd(),
        ):
            yield
    finally:
        if profiled:
            _C._autograd._enable_record_function(True)


def measure(gradient: Tensor) -> Health:
    """The health of a gradient of any dtype, layout and kind; call it within :func:`unseen`.

    Does not raise: what can't be measured is not known, and ``unknown`` says why.
    """
    try:
        gradient = unwrapped(gradient)
        layout = name_of(gradient.layout)
        facts = (name_of(gradient.dtype), shape_of(gradient), str(gradient.device), layout)
        sizes = gradient.numel(), held_bytes(gradient)
    except Exception as error:  # noqa: BLE001 - an exotic tensor must not end the user's backward
        return unknown(type(error).__name__)
    why = why_unknown(gradient)
    if why:
        return _unknown(facts, sizes, why)
    try:
        whole = _remembered(gradient)
    except Exception as error:  # noqa: BLE001 - as above
        return _unknown(facts, sizes, type(error).__name__)
    known = whole if whole.finite else None
    return Health(
        *facts,
        *sizes,
        whole.numbers,
        whole.nan,
        whole.posinf,
        whole.neginf,
        whole.zero,
        min=known and known.min,
        max=known and known.max,
        mean=known and known.mean,
        norm=known and known.norm,
        unknown="",
    )


def held_bytes(tensor: Tensor) -> int:
    """Bytes in memory of the tensor's elements; 0 where that can't be told (nested, ...)."""
    try:
        if tensor.layout is torch.strided:
            if tensor.is_contiguous():
                return tensor.nbytes
            return min(tensor.nbytes, tensor.untyped_storage().nbytes())
        if tensor.is_sparse:
            return tensor._values().nbytes + tensor._indices().nbytes
        if tensor.layout in COMPRESSED:
            return sum(getattr(tensor, part)().nbytes for part in COMPRESSED[tensor.layout])
    except (RuntimeError, NotImplementedError):
        pass
    return 0


COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices", "values"),
    torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
    torch.sparse_csc: ("ccol_indices", "row_indices", "values"),
    torch.sparse_bsc: ("ccol_indices", "row_indices", "values"),
}
_names: dict[torch.dtype | torch.layout, str] = {}


def name_of(value: torch.dtype | torch.layout) -> str:
    """Torch's name of it, without what stands in front."""
    name = _names.get(value)
    if name is None:
        name = _names[value] = str(value).removeprefix("torch.").removeprefix("_")
    return name


def unknown(why: str) -> Health:
    """The health of a tensor of which nothing is known."""
    return _unknown(("", None, "", ""), (0, 0), why)


def is_finite(gradient: Tensor) -> bool:
    """Whether nothing non-finite is found in it; call it within :func:`unseen`. Does not raise."""
    return measure(gradient).is_finite


def _unknown(
    facts: tuple[str, tuple[int, ...] | None, str, str], sizes: tuple[int, int], why: str
) -> Health:
    return Health(*facts, *sizes, 0, 0, 0, 0, 0, None, None, None, None, why)


def unwrapped(tensor: Tensor) -> Tensor:
    """``tensor`` without the wrappings of ``torch.func`` and of ``is_grads_batched``."""
    while _C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = _C._functorch.get_unwrapped(tensor)
    for level in range(native_run.legacy_vmap_level(), 0, -1):
        tensor = cast("Any", torch)._remove_batch_dim(tensor, level, 1, 0)
    return tensor


def shape_of(gradient: Tensor) -> tuple[int, ...] | None:
    """Its sizes; None where they are not known (nested, symbolic)."""
    if gradient.is_nested:
        return None
    shape = tuple(gradient.shape)
    return shape if all(type(size) is int for size in shape) else None


def why_unknown(gradient: Tensor) -> str:
    """Why the elements of an unwrapped gradient can't be looked at; empty where they can."""
    if type(gradient) not in _PLAIN:
        return f"a {type(gradient).__name__}"
    if gradient.is_meta:
        return "has no elements to look at (meta)"
    if gradient.is_nested:
        return "a nested tensor"
    if gradient.layout is not torch.strided and not (
        gradient.is_sparse or gradient.layout in COMPRESSED
    ):
        return f"of layout {name_of(gradient.layout)}"
    return ""


class _Known(NamedTuple):
    """What was found for some memory."""

    pin: StorageWeakRef
    """Keeps the storage's address, but not its memory, from being used for another."""
    state: tuple[Any, ...]
    whole: _Part


def forget() -> None:
    """Measure all anew: code of the program ran. Note [Views are measured once]."""
    _generation[0] = _next_generation()


def same_memory(gradient: Tensor) -> tuple[Any, ...] | None:
    """Equal for a storage only as long as its bytes are; None where nothing is sure to tell that.

    Note [Views are measured once]. Compare it for one storage, and keep that from being freed.
    """
    if gradient.is_inference() or _C._len_torch_dispatch_stack():
        return None
    return (
        *(_generation[0], gradient._version, gradient.data_ptr(), gradient.numel()),
        *(gradient.dtype, gradient.is_conj(), gradient.is_neg()),
    )


def _remembered(gradient: Tensor) -> _Part:
    if (
        gradient.layout is not torch.strided
        or gradient.numel() <= _FEW
        or (state := same_memory(gradient)) is None
        or not (gradient.is_contiguous() or _is_dense(gradient))
    ):
        return _combined(_parts(gradient))
    storage = gradient.untyped_storage()
    memory: Recent[int, _Known] = _thread.__dict__.setdefault("known", Recent())
    known = memory.get(storage._cdata)
    if known is None or known.state != state:
        known = _Known(StorageWeakRef(storage), state, _combined(_parts(gradient)))
    memory.keep(storage._cdata, known)
    return known.whole


def _parts(gradient: Tensor) -> Iterator[_Part]:
    """The elements, part by part; the order does not matter."""
    if gradient.layout is not torch.strided:
        gradient = gradient._values() if gradient.is_sparse else gradient.values()
    if not gradient.numel():
        return
    repeats = 1
    for dimension, stride in enumerate(gradient.stride()):
        if not stride:  # expanded: one of them stands for all
            repeats *= gradient.shape[dimension]
            gradient = gradient.narrow(dimension, 0, 1)
    for chunk in _chunks(gradient):
        if chunk.is_complex():
            chunk = torch.view_as_real(chunk.resolve_conj()).reshape(-1)  # noqa: PLW2901
        part = _few(chunk.tolist()) if chunk.numel() <= _FEW else _many(chunk)
        yield part if repeats == 1 else _repeated(part, repeats)


def _chunks(gradient: Tensor) -> Iterator[Tensor]:
    """One-dimensional tensors with all elements; views where the elements lie side by side."""
    size = _CHUNK if gradient.device.type == "cpu" else _CHUNK_ON_DEVICE
    if gradient.is_complex():
        size //= 2
    numel = gradient.numel()
    if gradient.is_contiguous():
        flat = gradient.view(-1)
    elif _is_dense(gradient):
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


def _is_dense(tensor: Tensor) -> bool:
    """Whether the elements lie side by side, in whatever order."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _few(values: list[float]) -> _Part:
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) == len(values):
        return _finite_few(values)
    return _finite_few(finite)._replace(
        numbers=len(values),
        nan=sum(map(math.isnan, values)),
        posinf=values.count(math.inf),
        neginf=values.count(-math.inf),
    )


def _finite_few(values: list[float]) -> _Part:
    count = len(values)
    if not count:
        return _Part(0)
    return _Part(
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


def _many(chunk: Tensor) -> _Part:
    if chunk.dtype not in _SUMMABLE:
        chunk = chunk.to(torch.float64 if chunk.dtype in _WIDENED else torch.float32)
    low, high = _items(torch.amin(chunk), torch.amax(chunk))
    if math.isfinite(low) and math.isfinite(high):
        return _finite(chunk, low, high)
    finite = chunk[torch.isfinite(chunk)]
    part = _Part(0)
    if finite.numel():
        part = _finite(finite, *_items(torch.amin(finite), torch.amax(finite)))
    counts = [torch.count_nonzero(is_so(chunk)) for is_so in _KINDS]
    nan, posinf, neginf = map(int, _items(*counts))
    return part._replace(numbers=chunk.numel(), nan=nan, posinf=posinf, neginf=neginf)


_KINDS = (torch.isnan, torch.isposinf, torch.isneginf)


def _finite(chunk: Tensor, low: float, high: float) -> _Part:
    count = chunk.numel()
    if low == high == 0:
        return _Part(count, zero=count, finite=count, min=low, max=high)
    zeros = [_zeros(chunk)] if low <= 0 <= high else []
    scale = 1.0
    least, most = _SUMMABLE[chunk.dtype]
    magnitude = max(-low, high)
    if not least < magnitude < most:
        scale = magnitude
        chunk = chunk.to(torch.float64) / scale
    total, norm, *zero = _items(torch.sum(chunk), _norm(chunk), *zeros)
    return _Part(
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


def _repeated(part: _Part, times: int) -> _Part:
    return part._replace(
        numbers=times * part.numbers,
        nan=times * part.nan,
        posinf=times * part.posinf,
        neginf=times * part.neginf,
        zero=times * part.zero,
        finite=times * part.finite,
        norm=part.norm * math.sqrt(times),
    )


def _combined(parts: Iterator[_Part]) -> _Part:
    first = next(parts, _Part(0))
    more = list(parts)
    if not more:
        return first
    found = [first, *more]
    finite = sum(part.finite for part in found)
    return _Part(
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
