"""Whether elements fill their memory without gaps and overlaps (``is_non_overlapping_and_dense``).

Torch's own function in Python imports ``torch.fx.experimental`` at its first call, which takes a
second of CPU time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor


def is_dense(tensor: Tensor) -> bool:
    """Whether the elements lie side by side, in whatever order."""
    return are_dense(zip(tensor.stride(), tensor.shape, strict=True))


def are_dense(dimensions: Iterable[tuple[int, int]]) -> bool:
    """The same of strides and sizes."""
    expected = 1
    for stride, size in sorted(dimensions):
        if size > 1:
            if stride != expected:
                return False
            expected *= size
    return True
