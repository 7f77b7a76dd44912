"""The health of a gradient: what its elements are like, in a dozen numbers.

All numbers are over the real numbers that are stored: a complex element is two of them, and of a
sparse tensor only the stored values count, coalesced or not. ``min``, ``max``, ``mean`` and
``norm`` leave non-finite elements out, so that they still say something where one is NaN.

Note [Measuring must not be felt]
Everything runs below autograd, autocast, functorch and the Python modes, and unseen by the
profiler; nothing random is drawn and nothing is written to but a scratch buffer of the thread.

Note [Views are measured once]
Half of what flows through a model is what another node has just put out, in another shape. Such a
gradient has the same memory, of the same version; what was found for it, if it is not small, holds
until Python code of the program may have run (:data:`~agviz_engine.thread_state.stretch`), which
could have changed it behind the version's back.
"""

from __future__ import annotations

import contextlib
import math
import threading
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import Parameter

from agviz.measure import device_kernel, kernel
from agviz.measure.elements import (
    FEW,
    PartNumbers,
    is_apart,
    numbers_of,
    repeated,
)
from agviz.measure.recent import Recent
from agviz.measure.values import Health
from agviz_engine.dense import are_dense, is_dense
from agviz_engine.errors import comes_from_outside
from agviz_engine.finalizers import held_off
from agviz_engine.instruments import own_packages
from agviz_engine.interrupt import held_back
from agviz_engine.tensor_facts import (
    COMPRESSED,
    block_places,
    held_bytes,
    is_plain,
    storage_address,
    tensor_block,
)
from agviz_engine.thread_state import stretch
from agviz_engine.torch_modes import legacy_vmap_level

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_C = cast("Any", torch._C)
own_packages.add(__package__)  # none may leave autograd switched off behind it
_profiler_enabled = _C._autograd._profiler_enabled
_PLAIN = (Tensor, Parameter)
_REMEMBERED = 1 << 12
"""Below so many elements, one pass over them is quicker than to find that they are known."""
_PLAIN_KEPT = 1 << 12
_function_mode_enabled = _C._is_torch_function_mode_enabled
_len_dispatch_stack = _C._len_torch_dispatch_stack


_Reader: TypeAlias = "Callable[[int, int], tuple[Any, ...] | None]"


class Plain:
    """A kind of tensor whose elements compiled code reads one after the other."""

    __slots__ = (
        *("by_nbytes", "dtype", "is_dense", "may_be_freed", "measure", "measure_many"),
        *("nbytes", "numel", "remembered", "repeats", "tensor_type"),
    )

    def __init__(
        self,
        dtype: torch.dtype,
        readers: tuple[_Reader, _Reader],
        tensor_type: tuple[Any, ...],
        *,
        is_dense: bool,
        may_be_freed: bool,
        remembered: int = _REMEMBERED,
        repeats: int = 1,
    ) -> None:
        self.dtype = dtype
        self.measure, self.measure_many = readers
        """Take an address and a number of elements; the second from ``remembered`` elements on."""
        self.remembered = remembered
        self.tensor_type = tensor_type
        """As :attr:`agviz.measure.values.Health.tensor_type`."""
        self.numel, self.nbytes = tensor_type[4], tensor_type[5]
        self.is_dense = is_dense
        """Whether the elements lie side by side; if not, a copy is read, and they are few."""
        self.may_be_freed = may_be_freed
        """Whether its address would not show that its storage was resized to nothing."""
        self.repeats = repeats
        """How often each element is there: of an expanded tensor, more than once."""
        self.by_nbytes: dict[int, Plain] = {}
        """The same kind by the bytes that it holds, which those of its storage limit."""

    def of(self, nbytes: int) -> Plain:
        """The same kind, where it holds so many bytes in memory."""
        found = self.by_nbytes.get(nbytes)
        if found is None:
            tensor_type = (*self.tensor_type[:5], nbytes, *self.tensor_type[6:])
            found = Plain(
                self.dtype,
                (self.measure, self.measure_many),
                tensor_type,
                is_dense=self.is_dense,
                may_be_freed=self.may_be_freed,
                remembered=self.remembered,
                repeats=self.repeats,
            )
            self.by_nbytes[nbytes] = found
        return found


@contextlib.contextmanager
def unseen() -> Iterator[None]:
    """Note [Measuring must not be felt]; around calls of :func:`measure`.

    No finalizer of the program strikes in it, nor a handler of a signal: autograd is out of force.

    Raises:
        BaseException: what a handler that was held back raises at the end.
    """
    profiled = _profiler_enabled()
    if profiled:
        _C._autograd._enable_record_function(False)
    try:
        with (
            held_back(),
            held_off(),
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


def health_of(gradient: Tensor) -> Health:
    """As :func:`measure`; may be called anywhere."""
    at_once = found_at_once(gradient)
    if at_once is None:
        with unseen():
            return measure(gradient)
    return health_in(*at_once)


def health_in(plain: Plain, found: tuple[Any, ...]) -> Health:
    """The health of a gradient of which that was :func:`found_at_once`."""
    nan, posinf, neginf, finite, zero, *figures = found
    if not finite:
        figures = [None] * 4
    *tensor_type, unknown = plain.tensor_type
    return Health._make((*tensor_type, nan, posinf, neginf, zero, *figures, unknown))


def found_at_once(gradient: Tensor) -> tuple[Plain, tuple[Any, ...]] | None:
    """What kind of tensor it is, and what the compiled code finds in it (``measured_at``).

    None where something needs to be dispatched for it. Most gradients are not like that. Few lines,
    because they run when the node has just driven the interpreter out of the processor's caches:
    each counts several times.
    """
    plain = None
    if type(gradient) in _PLAIN and not (_function_mode_enabled() or _len_dispatch_stack()):
        plain = _known_of(gradient) or _looked_at(gradient)
    if plain is None or plain.repeats > 1:
        return None if plain is None else _found_in_expanded(plain, gradient)
    numel = plain.numel
    address = gradient.data_ptr()
    if not address or (plain.may_be_freed and not gradient.untyped_storage().nbytes()):
        return None
    if not plain.is_dense:
        with unseen():
            gradient = gradient.contiguous()  # which has to live until it was read
        address = gradient.data_ptr()
    if numel < plain.remembered:
        found = plain.measure(address, numel)
        return None if found is None else (plain, found)
    dtype = plain.dtype
    memory, place = _thread.known, storage_address(gradient)
    state = stretch[0], gradient._version, address, numel, dtype, False, False
    known = memory.get(place)
    if known is not None and known[1] == state:
        return plain, known[2]
    found = plain.measure_many(address, numel)
    if found is not None:
        memory.keep(place, (StorageWeakRef(gradient.untyped_storage()), state, found))
        return plain, found
    return None


def _found_in_expanded(plain: Plain, gradient: Tensor) -> tuple[Plain, tuple[Any, ...]] | None:
    address, times = gradient.data_ptr(), plain.repeats
    held = min(plain.nbytes, gradient.untyped_storage().nbytes())
    if not (address and held):
        return None
    found = plain.measure(address, plain.numel // times)
    return None if found is None else (plain.of(held), repeated(found, times))


FINITE: Final = 3
"""Place of the number of finite elements in what is found at once; behind it are ``zero``, ``min``,
``max``, ``mean`` and ``norm``."""
_plain_by_block: dict[Any, Plain] = {}
"""By the block of a tensor (:func:`~agviz_engine.tensor_facts.tensor_block`); joined, where
compiled code looks for it."""
_compiled_lookup = kernel.lookup(block_places, _plain_by_block)
_known_of: Callable[[Tensor], Plain | None] = _compiled_lookup or (
    lambda gradient: _plain_by_block.get(tensor_block(gradient))
)


def _looked_at(gradient: Tensor) -> Plain | None:
    """Whether a tensor is plain; if so, all of the same block are known from now on."""
    dtype, numel = gradient.dtype, gradient.numel()
    if numel and dtype in kernel.MEASURE and is_plain(gradient):
        readers: tuple[_Reader, _Reader] = kernel.MEASURE[dtype], kernel.reader(dtype)
        device, remembered = "cpu", _REMEMBERED
    elif device_kernel.is_plain(gradient):
        readers = (device_kernel.reader(gradient.device.index, dtype),) * 2
        device = str(gradient.device)
        remembered = 0 if is_dense(gradient) else numel + 1  # to look is quicker than to launch
    else:
        return None
    dimensions = list(zip(gradient.stride(), gradient.shape, strict=True))
    repeats = math.prod(size for stride, size in dimensions if not stride)
    dense = are_dense(each for each in dimensions if each[0])
    if (repeats > 1 or not dense) and numel // repeats >= _REMEMBERED:
        return None
    if not dense and (repeats > 1 or not is_apart(gradient)):
        return None
    shape, nbytes = tuple(gradient.shape), numel * dtype.itemsize
    tensor_type = name_of(dtype), shape, device, "strided", numel, nbytes, numel, ""
    if len(_plain_by_block) >= _PLAIN_KEPT:
        _plain_by_block.clear()
    may_be_freed = gradient.storage_offset() != 0
    found = Plain(
        dtype,
        readers,
        tensor_type,
        is_dense=dense,
        may_be_freed=may_be_freed,
        remembered=remembered,
        repeats=repeats,
    )
    block = tensor_block(gradient)
    _plain_by_block[block if _compiled_lookup is None else b"".join(cast("Any", block))] = found
    return found


def measure(gradient: Tensor) -> Health:
    """The health of a gradient of any dtype, layout and kind; call it within :func:`unseen`.

    Does not raise: what can't be measured is not known, and ``unknown`` says why.
    """
    try:
        gradient = unwrapped(gradient)
        layout = name_of(gradient.layout)
        facts = (name_of(gradient.dtype), shape_of(gradient), str(gradient.device), layout)
        numel = gradient.numel()
        sizes = numel if type(numel) is int else 0, held_bytes(gradient)
    except Exception as error:
        if comes_from_outside(error):
            raise
        return unknown(type(error).__name__)
    why = why_unknown(gradient)
    if why:
        return _unknown(facts, sizes, why)
    try:
        whole = _remembered(gradient)
    except Exception as error:
        if comes_from_outside(error):
            raise
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


_names: dict[torch.dtype | torch.layout, str] = {}


def name_of(value: torch.dtype | torch.layout) -> str:
    """Torch's name of it, without what precedes it."""
    name = _names.get(value)
    if name is None:
        name = _names[value] = str(value).removeprefix("torch.").removeprefix("_")
    return name


def unknown(why: str) -> Health:
    """The health of a tensor of which nothing is known."""
    return _unknown(("", None, "", ""), (0, 0), why)


def _unknown(
    facts: tuple[str, tuple[int, ...] | None, str, str], sizes: tuple[int, int], why: str
) -> Health:
    return Health(*facts, *sizes, 0, 0, 0, 0, 0, None, None, None, None, why)


def unwrapped(tensor: Tensor) -> Tensor:
    """``tensor`` without the wrappings of ``torch.func`` and of ``is_grads_batched``."""
    while _C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = _C._functorch.get_unwrapped(tensor)
    for level in range(legacy_vmap_level(), 0, -1):
        tensor = cast("Any", torch)._remove_batch_dim(tensor, level, 1, 0)
    return tensor


def shape_of(gradient: Tensor) -> tuple[int, ...] | None:
    """Its sizes; None where they are not known (nested, symbolic)."""
    if gradient.is_nested:
        return None
    shape = tuple(gradient.shape)
    return shape if all(type(size) is int for size in shape) else None


def _is_freed(gradient: Tensor) -> bool:
    """Whether its storage was resized to nothing, as FSDP does with what it has gathered."""
    if gradient.layout is not torch.strided or not gradient.numel():
        return False
    return not gradient.untyped_storage().nbytes()


def why_unknown(gradient: Tensor) -> str:
    """Why the elements of an unwrapped gradient can't be looked at; empty where they can."""
    if type(gradient) not in _PLAIN:
        return f"a {type(gradient).__name__}"
    if gradient.is_meta:
        return "has no elements to look at (meta)"
    if gradient.is_nested:
        return "a nested tensor"
    if _is_freed(gradient):
        return "its memory was given back"
    if gradient.layout is not torch.strided and not (
        gradient.is_sparse or gradient.layout in COMPRESSED
    ):
        return f"of layout {name_of(gradient.layout)}"
    return ""


_Known = tuple[StorageWeakRef, tuple[Any, ...], tuple[Any, ...]]
"""What keeps a storage's address, but not its memory, from being used for another; the state of
that memory; what was found, as the fields of a :class:`~agviz.measure.elements.PartNumbers` but
for the first."""


class _OfThread(threading.local):
    """What a thread has measured last, by storage."""

    def __init__(self) -> None:
        self.known: Recent[int, _Known] = Recent()


_thread = _OfThread()


def same_memory(gradient: Tensor) -> tuple[Any, ...] | None:
    """Equal for a storage only as long as its bytes are; None where nothing is sure to show that.

    Note [Views are measured once]. Compare it for one storage, and keep that from being freed.
    """
    if gradient.is_inference() or _C._len_torch_dispatch_stack():
        return None
    return (
        *(stretch[0], gradient._version, gradient.data_ptr(), gradient.numel()),
        *(gradient.dtype, gradient.is_conj(), gradient.is_neg()),
    )


def _remembered(gradient: Tensor) -> PartNumbers:
    if (
        gradient.layout is not torch.strided
        or gradient.numel() <= FEW
        or (state := same_memory(gradient)) is None
        or not (gradient.is_contiguous() or is_dense(gradient))
    ):
        return numbers_of(gradient)
    storage = gradient.untyped_storage()
    memory = _thread.known
    known = memory.get(storage._cdata)
    if known is None or known[1] != state:
        known = StorageWeakRef(storage), state, numbers_of(gradient)[1:]
    memory.keep(storage._cdata, known)
    numbers = 2 * gradient.numel() if gradient.is_complex() else gradient.numel()
    return PartNumbers(numbers, *known[2])
