"""Whether two recorded gradients are the same, by what was measured of them or by their elements.

Note [Tolerance]
Two numbers are the same where they differ by no more than ``atol + rtol * scale``; the scale is the
largest finite magnitude in both gradients, for norms the larger norm. A number near zero beside
large ones is thus not held to its own size, which rounding does not respect either. NaN and
infinities must be as many, and with elements at hand in the same places. Zeros are counted only
where no tolerance is given.
"""

from __future__ import annotations

import importlib.util
import math
from typing import TYPE_CHECKING, NamedTuple

from agviz.errors import AgvizError

if TYPE_CHECKING:
    from torch import Tensor

    from agviz.traces.health import HealthRow
    from agviz.traces.reader import Trace
    from agviz.traces.values import Part, ValueRow


class Tolerance(NamedTuple):
    """How far apart numbers may be: Note [Tolerance]."""

    rtol: float = 0.0
    atol: float = 0.0

    def checked(self) -> Tolerance:
        """Itself. Raises AgvizError where a number is negative or not finite."""
        for name, value in self._asdict().items():
            if not (math.isfinite(value) and value >= 0):
                raise AgvizError(f"{name} is {value}; it must be a finite number, 0 or more")
        return self

    @property
    def is_exact(self) -> bool:
        """Whether nothing may differ at all."""
        return self == (0.0, 0.0)

    def allows(self, difference: float, scale: float) -> bool:
        """Whether numbers of this ``scale`` may be so far apart."""
        return difference <= self.atol + self.rtol * scale


class Elements(NamedTuple):
    """What comparing element by element came to."""

    same: bool
    largest: float | None
    """Largest difference of two elements, inf where one of them is not finite and the other is
    something else; None: they can't be subtracted from each other."""


def differing(a: HealthRow, b: HealthRow, tolerance: Tolerance) -> list[str]:
    """The facts in which two gradients differ, by their names in HealthRow; none where unknown.

    Where they have different dtypes, their numbers are compared all the same; where they have
    different shapes, they are not.
    """
    found = [fact for fact in ("dtype", "shape", "layout") if getattr(a, fact) != getattr(b, fact)]
    if a.unknown or b.unknown or "shape" in found:
        return found
    counts = ["nan", "posinf", "neginf", *(["zero"] if tolerance.is_exact else [])]
    found += [fact for fact in counts if getattr(a, fact) != getattr(b, fact)]
    scale = max(_magnitude(a), _magnitude(b))
    for fact in ("min", "max", "mean", "norm"):
        of_a, of_b = getattr(a, fact), getattr(b, fact)
        if of_a is None or of_b is None:
            if of_a is not of_b:
                found.append(fact)
        elif of_a != of_b:
            size = max(of_a, of_b) if fact == "norm" else scale
            if not tolerance.allows(abs(of_a - of_b), size):
                found.append(fact)
    return found


def _magnitude(row: HealthRow) -> float:
    return max(abs(row.min or 0.0), abs(row.max or 0.0))


def compare_elements(
    a: tuple[Trace, ValueRow], b: tuple[Trace, ValueRow], tolerance: Tolerance
) -> Elements | None:
    """Compare two gradients of the same shape and layout that are both in the files themselves.

    Imports torch where their bytes differ.

    Returns:
        None where the bytes differ, but what that means is not known: the gradients were expanded
        along different dimensions, or torch, which could say how far they are apart, is not there.

    Raises:
        agviz.errors.TraceError: a file is damaged.
    """
    of_a, of_b = (trace.value_parts(row.seq) for trace, row in (a, b))
    if of_a == of_b:
        return Elements(same=True, largest=0.0)
    if of_a.keys() != of_b.keys() or any(
        of_a[name] != of_b[name] for name in of_a if name != "values"
    ):
        return Elements(same=False, largest=None)
    if importlib.util.find_spec("torch") is None:
        return Elements(same=False, largest=None) if tolerance.is_exact else None
    return _subtract(_numbers(of_a["values"]), _numbers(of_b["values"]), tolerance)


def _subtract(a: Tensor, b: Tensor, tolerance: Tolerance) -> Elements | None:
    import torch

    try:
        shape = torch.broadcast_shapes(a.shape, b.shape)
    except RuntimeError:
        return None
    if shape not in {a.shape, b.shape}:  # what a stranger's file says could grow beyond all bounds
        return None
    a, b = a.expand(shape), b.expand(shape)
    same = (a == b) | (a.isnan() & b.isnan())
    if bool(same.all()):
        return Elements(same=True, largest=0.0)
    apart = (a - b).abs()[~same].nan_to_num(nan=math.inf, posinf=math.inf)
    finite = torch.cat([a[a.isfinite()], b[b.isfinite()]]).abs()
    scale = float(finite.max()) if finite.numel() else 0.0
    largest = float(apart.max())
    return Elements(same=tolerance.allows(largest, scale), largest=largest)


def _numbers(part: Part) -> Tensor:
    """The elements of a part as real numbers in float64; complex ones are two each."""
    import torch

    dtype: torch.dtype = getattr(torch, part.dtype)
    if not part.data:
        return torch.empty(part.shape, dtype=torch.float64)
    tensor = torch.frombuffer(part.data, dtype=dtype).view(part.shape)
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.to(torch.float64)
