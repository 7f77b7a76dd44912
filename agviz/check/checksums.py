"""Checksums of tensors: whether what one holds has changed, whatever its version says."""

from __future__ import annotations

import zlib
from typing import Final

import torch
from torch import Tensor

_WHOLE: Final = 256 * 1024
"""Bytes up to which all go into a CRC; of larger tensors, a sum of all and a CRC of some."""
_SOME: Final = 4096
_PLAIN: Final = (Tensor, torch.nn.Parameter)
Checksum = tuple[int, ...]


def checksum(tensor: Tensor) -> Checksum | None:
    """Numbers that change with any element, all but surely; None: it can't be read.

    Only plain dense tensors with memory of their own are read. On a GPU this waits for it.
    """
    if type(tensor) not in _PLAIN or tensor.layout is not torch.strided or tensor.is_quantized:
        return None
    if not has_memory(tensor):
        return None
    with torch.no_grad(), torch._C._DisableTorchDispatch():
        flat = _as_bytes(tensor.detach())
        size = flat.numel()
        if size <= _WHOLE:
            return (size, _crc(flat))
        words = flat[: size // 8 * 8].view(torch.int64)
        some = words[:: max(1, words.numel() // _SOME)]
        return (size, int(words.sum()), _crc(some.contiguous()), _crc(flat[size // 8 * 8 :]))


def has_memory(tensor: Tensor) -> bool:
    """Whether there is something to read: FSDP frees what is not in use."""
    return tensor.device.type != "meta" and bool(tensor.untyped_storage().nbytes())


def _as_bytes(tensor: Tensor) -> Tensor:
    for dimension, stride in enumerate(tensor.stride()):
        if stride == 0 and tensor.shape[dimension] > 1:
            tensor = tensor.narrow(dimension, 0, 1)
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    flat = tensor.contiguous().reshape(-1)
    if flat.stride(0) != 1:  # it is one number
        flat = flat.clone(memory_format=torch.contiguous_format)
    return flat.view(torch.uint8)


def _crc(tensor: Tensor) -> int:
    """Of a copy: memory that numpy has seen can't be resized any more, as FSDP does."""
    return zlib.crc32(tensor.clone().cpu().view(torch.uint8).numpy().data)
