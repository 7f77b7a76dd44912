"""The numbers of dense elements in one pass over their memory, where that was built.

Installing agviz builds ``kernel.c`` if there is a C compiler (``hatch_build.py``). Where
there was none, torch's own reductions find the same numbers, in five passes; of the mean and the
norm the last digits may differ.
"""

from __future__ import annotations

import ctypes
import struct
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from torch import Tensor

_FILE = Path(__file__).with_name("_kernel.so")
_part = struct.Struct("5q4d")
unpack = _part.unpack
_LARGE = 1 << 17
"""From so many elements on, several threads share the work, and other Python threads may run."""


class _OfThread(threading.local):
    """Where a thread has its answers written."""

    def __init__(self) -> None:
        self.part = ctypes.create_string_buffer(_part.size)


of_thread = _OfThread()


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
    part = of_thread.part
    if numel < _LARGE:
        MEASURE[dtype](address, numel, part)
    else:
        _MANY[dtype](address, numel, part, _PARALLEL, torch.get_num_threads())
    return unpack(part)


def is_built() -> bool:
    """Whether the compiled code is there."""
    return bool(MEASURE)


def _functions(library: ctypes.CDLL, name: str, *more: Any) -> dict[torch.dtype, Any]:
    found = {}
    for dtype, real in ((torch.float32, "float32"), (torch.float64, "float64")):
        function = found[dtype] = getattr(library, f"agviz_{name}_{real}")
        function.argtypes = (ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, *more)
        function.restype = None
    return found


def _load() -> tuple[dict[torch.dtype, Any], dict[torch.dtype, Any]]:
    """By dtype: the function that keeps the interpreter to itself, and the one that does not."""
    try:
        few = _functions(ctypes.PyDLL(str(_FILE)), "measure_few")
        return few, _functions(ctypes.CDLL(str(_FILE)), "measure", ctypes.c_void_p, ctypes.c_uint)
    except (OSError, AttributeError):  # not built, or for another machine or version
        return {}, {}


def _parallel() -> int | None:
    """Where GNU OpenMP's ``GOMP_parallel`` is that torch uses; None where it uses another."""
    library = Path(torch.__file__).with_name("lib") / "libtorch_cpu.so"
    try:
        return ctypes.cast(ctypes.CDLL(str(library)).GOMP_parallel, ctypes.c_void_p).value
    except (OSError, AttributeError):
        return None


_PARALLEL = _parallel()
MEASURE, _MANY = _load()
"""By dtype; empty where nothing is built. The first take an address, a number of elements and where
the answer is written, which ``unpack`` reads; they keep the interpreter to themselves."""
