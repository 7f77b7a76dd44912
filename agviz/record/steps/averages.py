"""Copies of a model whose parameters are averaged and whose running statistics are not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from torch.nn import Module

_OFTEN: Final = 8
"""Writes to a parameter: more than initialising, loading and copying take."""
_MOST: Final = 16
"""Names."""


def without_statistics(modules: Iterable[tuple[str, Module]], held: Container[int]) -> list[str]:
    """Batch norms in ``eval()`` that nothing ever gave statistics, though their weight is written.

    Where no optimizer moves the weight, each write is one of an average.

    Args:
        modules: outermost ones, each with what names of its parameters begin with.
        held: identities of what optimizers hold, or held.
    """
    import torch

    from agviz.measure.health import unseen

    found: list[str] = []
    with unseen():
        for label, root in modules:
            for name, module in root.named_modules():
                if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
                    weight = vars(module)["_parameters"].get("weight")
                    if id(weight) not in held and _is_bare(module, weight):
                        found.append(".".join(filter(None, [label, name])))
    return found[:_MOST]


def _is_bare(module: Module, weight: object) -> bool:
    import torch

    buffers = vars(module)["_buffers"]
    mean, counted = buffers.get("running_mean"), buffers.get("num_batches_tracked")
    if module.training or type(weight) is not torch.nn.Parameter or weight.is_inference():
        return False
    if type(mean) is not torch.Tensor or type(counted) is not torch.Tensor or mean.is_meta:
        return False
    return weight._version >= _OFTEN and not bool(counted) and not bool(mean.any())
