"""The numbers of dense elements in one pass over their memory, where that was built.

Installing agviz builds ``kernel.c`` if there is a C compiler (``hatch_build.py``). Where
there was none, torch's own reductions find the same numbers, in five passes; of the mean and the
norm the last digits may differ.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor

_FILE = Path(__file__).with_name("_kernel.so")
_part = struct.Struct("5q4d")
_LARGE = 1 << 17
"""From so many elements on, several threads share the work, and other Python threads may run."""


def serves(tensor: Tensor) -> bool:
    """Whether there is such code for tensors of its dtype on its device."""
    return tensor.dtype in MEASURE and tensor.device.type == "cpu"


def measured(flat: Tensor) -> tuple[Any, ...]:
    """How many elements are NaN, +Inf, -Inf, finite and 0; min, max, mean and norm of the finite.

    Args:
        flat: One-dimensional, not empty, of those that the code :func:`serves`, its bytes as they
            are read (no conj, no neg).
    """
    flat = flat.contiguous()
    return measured_at(flat.data_ptr(), flat.numel(), flat.dtype)


def measured_at(address: int, numel: int, dtype: torch.dtype) -> tuple[Any, ...]:
    """As :func:`measured`, of ``numel`` elements that lie side by side from ``address`` on."""
    if numel < _LARGE:
        return MEASURE[dtype](address, numel)
    part = ctypes.create_string_buffer(_part.size)
    _MANY[dtype](address, numel, part, _PARALLEL, torch.get_num_threads())
    return _part.unpack(part)


def reader(dtype: torch.dtype) -> Measure:
    """:func:`measured_at` for one dtype."""
    return lambda address, numel: measured_at(address, numel, dtype)


def lookup(
    places: tuple[int, ...] | None, known: dict[bytes, Any]
) -> Callable[[Tensor], Any] | None:
    """What gives the value that ``known`` has for the joined block of a tensor, or None.

    The tensor has to be of type Tensor or Parameter. It takes a fifth of the time that it takes to
    read the block here and to look for it. None where there is no such code.

    Args:
        places: ``tensor_facts.block_places``.
        known: by :func:`~agviz_engine.tensor_facts.tensor_block`, joined.
    """
    if places is None or not MEASURE:
        return None
    look = ctypes.PyDLL(str(_FILE)).agviz_lookup
    look.argtypes, look.restype = (ctypes.c_void_p, ctypes.py_object), ctypes.py_object
    _held.append(known)
    found: Callable[[Tensor], Any] | None = look((ctypes.c_ssize_t * len(places))(*places), known)
    return found


_held: list[object] = []
"""What compiled code has a pointer to."""


def is_built() -> bool:
    """Whether the compiled code is there."""
    return bool(MEASURE)


Measure = Callable[[int, int], tuple[Any, ...]]


def _load() -> tuple[dict[torch.dtype, Measure], dict[torch.dtype, Any]]:
    """By dtype: the function that keeps the interpreter to itself, and the one that does not."""
    types = torch.float32, torch.float64
    try:
        library = ctypes.PyDLL(str(_FILE))
        library.agviz_few.restype = ctypes.py_object
        few = dict(zip(types, library.agviz_few(), strict=True))
        many = ctypes.CDLL(str(_FILE))
        functions = many.agviz_measure_float32, many.agviz_measure_float64
    except (OSError, AttributeError):  # not built, or for another machine or version
        return {}, {}
    for function in functions:
        numbers = ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p
        function.argtypes = *numbers, ctypes.c_void_p, ctypes.c_uint
        function.restype = None
    return few, dict(zip(types, functions, strict=True))


def _parallel() -> int | None:
    """Where GNU OpenMP's ``GOMP_parallel`` is that torch uses; None where it uses another."""
    library = Path(torch.__file__).with_name("lib") / "libtorch_cpu.so"
    try:
        return ctypes.cast(ctypes.CDLL(str(library)).GOMP_parallel, ctypes.c_void_p).value
    except (OSError, AttributeError):
        return None


_PARALLEL = _parallel()
MEASURE, _MANY = _load()
"""By dtype; empty where nothing is built. The first take an address and a number of elements,
answer as :func:`measured`, and keep the interpreter to themselves."""
