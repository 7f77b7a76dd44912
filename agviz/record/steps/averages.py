"""Copies of a model whose parameters are averaged and whose running statistics are not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable

    from torch import Tensor
    from torch.nn import Module

    Roots = Callable[[], Iterable[tuple[str, Module]]]

_OFTEN: Final = 8
"""Writes to a parameter: more than initialising, loading and copying take."""
_FIRST_LOOK: Final = 16
"""Steps before the first look; a power of two."""
_MOST: Final = 16
"""Names."""


class Averages:
    """Batch norms in ``eval()`` that nothing ever gave statistics, though their weight is written.

    Where no optimizer moves the weight, each write is one of an average. A model may be gone when
    the recording ends: its statistics as they were are kept, which are no more than two vectors.
    """

    def __init__(self) -> None:
        self._steps = 0
        self._kept: dict[str, tuple[Tensor, Tensor]] = {}
        """What was bare at the last look."""

    def stepped(self, modules: Roots, held: Container[int]) -> None:
        """An optimizer stepped: look now and then, each time after twice as many steps."""
        self._steps += 1
        if self._steps >= _FIRST_LOOK and not self._steps & (self._steps - 1):
            self.look(modules, held)

    def look(self, modules: Roots, held: Container[int]) -> list[str]:
        """The names of those that are bare now, or were when they were seen last.

        Args:
            modules: gives outermost ones, each with what names of its parameters begin with.
            held: identities of what optimizers hold, or held.
        """
        import torch

        from agviz.measure.health import unseen

        with unseen():
            kept = {name: each for name, each in self._kept.items() if _is_zero(*each)}
            for label, root in modules():
                for name, module in root.named_modules():
                    if not isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
                        continue
                    full = ".".join(filter(None, [label, name]))
                    weight = vars(module)["_parameters"].get("weight")
                    kept.pop(full, None)
                    if id(weight) not in held and _is_averaged(module, weight):
                        buffers = vars(module)["_buffers"]
                        kept[full] = buffers["running_mean"], buffers["num_batches_tracked"]
        self._kept = dict(list(kept.items())[:_MOST])
        return list(self._kept)


def _is_zero(mean: Tensor, counted: Tensor) -> bool:
    return not bool(counted) and not bool(mean.any())


def _is_averaged(module: Module, weight: object) -> bool:
    import torch

    buffers = vars(module)["_buffers"]
    mean, counted = buffers.get("running_mean"), buffers.get("num_batches_tracked")
    if module.training or type(weight) is not torch.nn.Parameter or weight.is_inference():
        return False
    if type(mean) is not torch.Tensor or type(counted) is not torch.Tensor or mean.is_meta:
        return False
    return weight._version >= _OFTEN and _is_zero(mean, counted)
