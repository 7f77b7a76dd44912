"""Histograms of recorded gradients: of their elements, never of anything that was not measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agviz.traces.values import Part

BINS: Final = 32
_MOST_SHOWN: Final = 64
_MOST_ELEMENTS: Final = 4_000_000
_DTYPES: Final = {
    "float64": "<f8",
    "float32": "<f4",
    "float16": "<f2",
    "int64": "<i8",
    "int32": "<i4",
    "int16": "<i2",
    "int8": "<i1",
    "uint8": "<u1",
    "complex64": "<c8",
    "complex128": "<c16",
}


class Sample(NamedTuple):
    """The elements of a recorded gradient, as far as there is room for them."""

    shape: tuple[int, ...]
    first: tuple[str, ...]
    """The first elements, in order of their indices."""
    counts: tuple[int, ...]
    """Of finite numbers, from the smallest to the largest in steps of equal width; empty where
    there are none, or too many elements."""
    low: float
    """The smallest finite number."""
    high: float
    """The largest."""


def sample_of(parts: Mapping[str, Part]) -> Sample | None:
    """Of a strided gradient; None for other layouts and dtypes that numpy does not know."""
    part = parts.get("values")
    if part is None or len(parts) > 1:
        return None
    import numpy as np

    elements: Any
    if part.dtype == "bfloat16":
        elements = (np.frombuffer(part.data, "<u2").astype("<u4") << 16).view("<f4")
    elif part.dtype in _DTYPES:
        elements = np.frombuffer(part.data, _DTYPES[part.dtype])
    else:
        return None
    first = tuple(f"{element:.4g}" for element in elements[:_MOST_SHOWN])
    counts: tuple[int, ...] = ()
    low = high = 0.0
    numbers = elements.view(elements.real.dtype) if elements.dtype.kind == "c" else elements
    finite = numbers[np.isfinite(numbers)] if numbers.dtype.kind == "f" else numbers
    if 0 < finite.size <= _MOST_ELEMENTS:
        low, high = float(finite.min()), float(finite.max())
        counts = _counted(finite, low, high)
    return Sample(part.shape, first, counts, low, high)


def _counted(finite: Any, low: float, high: float) -> tuple[int, ...]:
    import numpy as np

    # Halved, the largest numbers have a difference that is a number.
    half = finite.astype("f8") / 2
    if low == high:
        return (int(finite.size),)
    counts, _ = np.histogram(half, BINS, (low / 2, high / 2))
    return tuple(map(int, counts))


def bars(counts: tuple[int, ...], width: int) -> str:
    """A line of ``width`` blocks whose heights are the counts; every element is seen."""
    if not counts:
        return ""
    per_cell = [0] * width
    for place, number in enumerate(counts):
        first = place * width // len(counts)
        last = max(first + 1, (place + 1) * width // len(counts))
        for cell in range(first, last):
            per_cell[cell] += number
    most = max(per_cell)
    blocks = "▁▂▃▄▅▆▇█"
    return "".join(" " if not n else blocks[(n * 8 - 1) // most if most else 0] for n in per_cell)
