"""What is measured of gradients and of what nodes saved: plain data, without torch."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

NUMBERS: Final = 11
"""Values in a row of what was measured: ``seq`` of the emission that the gradient belongs to, graph
task, :attr:`Health.tensor_type`, and :attr:`Health.figures`."""


class Health(NamedTuple):
    """What was measured of one gradient, by :func:`agviz.measure.health.measure`."""

    dtype: str
    """Without ``torch.``."""
    shape: tuple[int, ...] | None
    """None: not known (nested, symbolic)."""
    device: str
    layout: str
    """Without ``torch.``."""
    numel: int
    nbytes: int
    """Bytes that the elements take up in memory; an expanded tensor has less than its shape says,
    a sparse one more than its values. 0 where that is not known."""
    numbers: int
    """Number of real numbers that were looked at."""
    nan: int
    posinf: int
    neginf: int
    zero: int
    """Number that are 0, of either sign."""
    min: float | None
    """Of the finite ones, as are all that follow; None where there are none."""
    max: float | None
    mean: float | None
    norm: float | None
    """Euclidean norm."""
    unknown: str
    """Why there are no numbers (``numbers`` is 0 then); empty where there are."""

    @property
    def tensor_type(self) -> tuple[Any, ...]:
        """What the tensor is like: the fields up to ``numbers``, and ``unknown``."""
        return (*self[:_FIGURES], self.unknown)

    @property
    def figures(self) -> tuple[Any, ...]:
        """The fields from ``nan`` to ``norm``."""
        return self[_FIGURES:-1]

    @property
    def is_finite(self) -> bool:
        """Whether nothing non-finite was found."""
        return not (self.nan or self.posinf or self.neginf)


_FIGURES: Final = Health._fields.index("nan")


@functools.lru_cache(maxsize=4096)
def text_of_shape(shape: tuple[int, ...] | None) -> str:
    """Like ``[8, 64]``; empty where ``shape`` is not known."""
    return "" if shape is None else str(list(shape))


class SavedValue(NamedTuple):
    """Something that a node had saved, by :func:`agviz.measure.saved.measured`."""

    name: str
    """As in torch's ``_saved_<name>``; ``tensors[0]`` where they are in a list."""
    tensor: Tensor | None
    """The tensor itself, where it could be looked at."""
    value: str | None
    """Text of what is no tensor; else None."""
    health: Health | None
    """None where it is no tensor."""


class Looked(NamedTuple):
    """What was measured of a custom Function's node right after it ran."""

    outputs: Sequence[Tensor | None]
    health: list[Health | None]
    """Of each output; None for an undefined one."""
    saved: tuple[SavedValue, ...]
    """What it had saved, where an output is not finite."""
