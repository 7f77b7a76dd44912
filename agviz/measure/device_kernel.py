"""The numbers of dense elements on a CUDA device in one pass over their memory.

``device_kernel.cu`` is compiled for the device by the NVRTC that torch brings, when the first
gradient is measured there. Torch's own reductions, which serve where that fails, need twenty
kernels and two waits for the device where this needs one of each: on an H100 a recorded step of a
transformer took 8.3 to 10.5 times the native one with them, 3.5 to 3.8 times with this; of a conv
net 7.5 and 2.1. Of the mean and the norm the last digits may differ.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import math
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import torch

from agviz_engine.errors import comes_from_outside
from agviz_engine.tensor_facts import MOST_DIMENSIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

log = logging.getLogger("agviz_engine")
_C = cast("Any", torch._C)
_SOURCE: Final = Path(__file__).with_suffix(".cu")
_NAMES: Final = {
    torch.float32: "measure_float32",
    torch.bfloat16: "measure_bfloat16",
    torch.float16: "measure_float16",
}
LARGEST: Final = 1 << 30
"""Elements: the kernel counts in ``int``."""
_NUMBERS: Final = 9
_THREADS: Final = 256
_EACH: Final = 8
"""Elements of a thread where there are few."""
_MOST_BLOCKS: Final = 264
"""Two for each multiprocessor of the largest devices."""
_Launch = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    *(ctypes.c_uint,) * 7,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
)
_Synchronize = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class _Code:
    """What is compiled for one device."""

    def __init__(self, index: int) -> None:
        utils: Any = torch.cuda._utils
        loaded = utils._cuda_load_module(_compiled(utils, index), list(_NAMES.values()))
        self.functions = {dtype: loaded[name].func for dtype, name in _NAMES.items()}
        driver = utils._get_gpu_runtime_library()
        self.launch = _Launch(("cuLaunchKernel", driver))
        self.synchronize = _Synchronize(("cuStreamSynchronize", driver))
        with torch.inference_mode(mode=False):
            plain = torch.empty(1, device=torch.device("cuda", index))
        self.keys = _C._dispatch_keys(plain).raw_repr()


class _Room:
    """What the launches of one thread on one device read and write."""

    def __init__(self, index: int, code: _Code) -> None:
        device = torch.device("cuda", index)
        self._index = index
        self._code = code
        self._tensors = (
            torch.empty(_MOST_BLOCKS * _NUMBERS, dtype=torch.float64, device=device),
            torch.zeros(1, dtype=torch.int32, device=device),
            torch.empty(_NUMBERS, dtype=torch.float64, device="cpu", pin_memory=True),
        )
        places = [ctypes.c_void_p(tensor.data_ptr()) for tensor in self._tensors]
        self._address, self._count = ctypes.c_void_p(), ctypes.c_int()
        given = self._address, self._count, *places
        self._arguments = (ctypes.c_void_p * len(given))(*map(ctypes.addressof, given))
        self._held = places
        self._found = (ctypes.c_double * _NUMBERS).from_address(self._tensors[-1].data_ptr())

    def measure(self, dtype: torch.dtype, address: int, numel: int) -> tuple[Any, ...] | None:
        """As :func:`measured`; None where the device has failed."""
        if _C._cuda_getDevice() != self._index:
            with torch.cuda.device(self._index):
                return self.measure(dtype, address, numel)
        self._address.value, self._count.value = address, numel
        stream = _C._cuda_getCurrentRawStream(self._index)
        blocks = min(_MOST_BLOCKS, -(-numel // (_THREADS * _EACH)))
        code = self._code
        function = code.functions[dtype]
        shape = blocks, 1, 1, _THREADS, 1, 1
        if code.launch(function, *shape, 0, stream, self._arguments, None):
            return None
        if code.synchronize(stream):
            return None
        nan, posinf, neginf, finite, zero, least, most, total, squares = self._found
        mean, norm = (total / finite, math.sqrt(squares)) if finite else (0.0, 0.0)
        return int(nan), int(posinf), int(neginf), int(finite), int(zero), least, most, mean, norm


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.rooms: dict[int, _Room] = {}


_thread = _OfThread()


def serves(tensor: Tensor) -> bool:
    """Whether there is such code for tensors of its dtype on its device."""
    return (
        tensor.dtype in _NAMES
        and tensor.device.type == "cuda"
        and _code(tensor.device.index) is not None
    )


def is_plain(tensor: Tensor) -> bool:
    """Whether the code :func:`serves` a tensor as it is: dense memory, of no kind but its own."""
    if tensor.dtype not in _NAMES or not tensor.is_cuda:
        return False
    if tensor.dim() > MOST_DIMENSIONS or not 0 < tensor.numel() <= LARGEST:
        return False
    code = _code(tensor.device.index)
    return code is not None and bool(_C._dispatch_keys(tensor).raw_repr() == code.keys)


def reader(index: int, dtype: torch.dtype) -> Callable[[int, int], tuple[Any, ...] | None]:
    """What finds the same in so many elements from an address on; None where the device failed."""

    def read(address: int, numel: int) -> tuple[Any, ...] | None:
        room = _thread.rooms.get(index)
        if room is None:
            room = _thread.rooms[index] = _Room(index, cast("_Code", _code(index)))
        return room.measure(dtype, address, numel)

    return read


def measured(flat: Tensor) -> tuple[Any, ...]:
    """How many elements are NaN, +Inf, -Inf, finite and 0; min, max, mean and norm of the finite.

    Waits for the stream that is current.

    Args:
        flat: One-dimensional, not empty, of those that the code :func:`serves`, its bytes as they
            are read (no conj, no neg).

    Raises:
        RuntimeError: the device has failed.
    """
    flat = flat.contiguous()
    found = reader(flat.device.index, flat.dtype)(flat.data_ptr(), flat.numel())
    if found is None:
        raise RuntimeError("the device has failed")
    return found


@functools.cache
def _code(index: int) -> _Code | None:
    """For one device; None where nothing can be compiled for it."""
    if torch.version.cuda is None:
        return None
    try:
        with torch.cuda.device(index):
            return _Code(index)
    except Exception as error:
        if comes_from_outside(error):
            raise
        log.info("gradients on the device are measured by torch's reductions: %s", error)
        return None


def _compiled(utils: Any, index: int) -> bytes:
    """The code for a device (NVRTC); torch's own ``_compile_kernel`` would import setuptools."""
    nvrtc = utils._get_gpu_rtc_library()
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    source = _SOURCE.read_bytes()
    _check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"agviz.cu", 0, None, None))
    try:
        major, minor = torch.cuda.get_device_capability(index)
        options = (ctypes.c_char_p * 1)(f"--gpu-architecture=sm_{major}{minor}".encode())
        _check(nvrtc.nvrtcCompileProgram(program, 1, options))
        _check(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)))
        code = ctypes.create_string_buffer(size.value)
        _check(nvrtc.nvrtcGetCUBIN(program, code))
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return code.raw


def _check(result: int) -> None:
    if result:
        raise RuntimeError(f"NVRTC error {result}")
