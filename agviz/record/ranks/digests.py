"""Checksums of some elements of parameters and gradients: whether they are equal on all ranks.

Ranks that lose their synchronisation drift apart in every element, so a few of each parameter do.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final

from agviz.traces.distributed import Digest

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

_ELEMENTS: Final = 32
"""Of each tensor."""
_FIRST: Final = 3
_EVERY: Final = 10


def is_due(step: int) -> bool:
    """Whether a step is one of those that are looked at: the first, then each tenth."""
    return step < _FIRST or step % _EVERY == 0


def digests(step: int, optimizer: Any, name_of: Callable[[Tensor], str | None]) -> list[Digest]:
    """What an optimizer's parameters, and their gradients, are after a step.

    Shards and other tensors that are no plain ones are left out.
    """
    import torch

    plain = torch.Tensor, torch.nn.Parameter
    found: list[tuple[str, Tensor, Tensor | None]] = []
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            name = name_of(parameter)
            if name and type(parameter) in plain and _is_dense(parameter):
                gradient = parameter.grad
                has_one = gradient is not None and type(gradient) in plain and _is_dense(gradient)
                found.append((name, parameter, gradient if has_one else None))
    with torch.no_grad(), torch._C.DisableTorchFunction():
        samples = [_sample(tensor) for _, value, grad in found for tensor in (value, grad)]
        sums = iter(_checksums(samples))
    return [Digest(step, name, next(sums) or 0, next(sums)) for name, _, _ in found]


def _is_dense(tensor: Any) -> bool:
    import torch

    return tensor.layout is torch.strided and not tensor.is_meta and tensor.is_contiguous()


def _sample(tensor: Tensor | None) -> Tensor | None:
    if tensor is None:
        return None
    flat = tensor.detach().view(-1)
    return flat[:: max(1, flat.numel() // _ELEMENTS)][:_ELEMENTS]


def _checksums(samples: list[Tensor | None]) -> list[int | None]:
    """Of all at once: a device is asked only once for each dtype."""
    import torch

    found: list[int | None] = [None] * len(samples)
    alike: dict[Any, list[tuple[int, Tensor]]] = {}
    for place, sample in enumerate(samples):
        if sample is not None:
            alike.setdefault((sample.device, sample.dtype), []).append((place, sample))
    for group in alike.values():
        joined = torch.cat([sample for _, sample in group]).cpu().view(torch.uint8).numpy()
        data, at = joined.tobytes(), 0
        for place, sample in group:
            nbytes = sample.numel() * sample.element_size()
            found[place] = zlib.crc32(data[at : at + nbytes])
            at += nbytes
    return found
