"""Parameters and buffers that are not finite, looked for where a loss is not, and at the end.

Nothing is looked for while all is well: that would cost a pass over all parameters in each step,
and have a device waited for.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from torch import Tensor
    from torch.nn import Module

_MOST_NUMBERS: Final = 2**30
"""That are looked at once."""


class Suspect(NamedTuple):
    """A tensor that is not finite."""

    name: str
    tensor: Tensor
    is_buffer: bool


def not_finite(modules: Iterable[tuple[str, Module]], *, waits_for_devices: bool) -> list[Suspect]:
    """The parameters and buffers of modules some of whose elements are NaN or infinite.

    Buffers that are infinite on purpose (masks) are no suspects: only NaN counts in buffers.

    Args:
        modules: outermost ones, each with what names of its parameters begin with.
        waits_for_devices: whether tensors on devices are looked at, too; one that hangs never ends.
    """
    import torch

    from agviz.measure.health import unseen

    each = [
        found
        for found in _all(modules)
        if _is_fit(found.tensor) and (waits_for_devices or found.tensor.device.type == "cpu")
    ]
    norms: dict[tuple[torch.device, torch.dtype], list[Tensor]] = {}
    places: list[tuple[tuple[torch.device, torch.dtype], int]] = []
    left = _MOST_NUMBERS
    looked: list[Suspect] = []
    with unseen():
        for found in each:
            left -= found.tensor.numel()
            if left < 0:
                break
            tensor = found.tensor.detach()
            wide = tensor.dtype if tensor.element_size() >= 4 else torch.float32
            total = (
                tensor.sum(dtype=wide)
                if found.is_buffer
                else torch.linalg.vector_norm(tensor, ord=math.inf, dtype=wide)
            )
            alike = norms.setdefault((total.device, total.dtype), [])
            places.append(((total.device, total.dtype), len(alike)))
            alike.append(total)
            looked.append(found)
        values = {kind: torch.stack(totals).tolist() for kind, totals in norms.items()}
    suspects = []
    for found, (kind, place) in zip(looked, places, strict=True):
        value = values[kind][place]
        if math.isnan(value) if found.is_buffer else not math.isfinite(value):
            suspects.append(found)
    return suspects


def _all(modules: Iterable[tuple[str, Module]]) -> Iterator[Suspect]:
    for label, module in modules:
        before = f"{label}." if label else ""
        for name, parameter in module.named_parameters():
            yield Suspect(before + name, parameter, is_buffer=False)
        for name, buffer in module.named_buffers():
            yield Suspect(before + name, buffer, is_buffer=True)


def _is_fit(tensor: Tensor) -> bool:
    import torch

    return (
        type(tensor) in {torch.Tensor, torch.nn.Parameter}
        and tensor.layout is torch.strided
        and not tensor.is_meta
        and not tensor.is_nested
        and tensor.is_floating_point()
        and tensor.numel() > 0
    )
