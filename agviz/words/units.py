"""Numbers with their units: times, sizes, counts."""

from __future__ import annotations

import math
from typing import Final

_TIMES: Final = (("ns", 1.0), ("µs", 1e3), ("ms", 1e6), ("s", 1e9))
_SIZES: Final = (("KiB", 2**10), ("MiB", 2**20), ("GiB", 2**30), ("TiB", 2**40))


def duration(ns: float | None) -> str:
    """A time span with three significant digits: ``812 ns``, ``45.2 µs``, ``1.00 ms``.

    Empty where it is not known.
    """
    if ns is None:
        return ""
    if ns < 999.5:
        return f"{ns:.0f} ns"
    unit, factor = next((each for each in _TIMES if ns < 999.5 * each[1]), _TIMES[-1])
    return f"{_three_digits(ns / factor)} {unit}"


def milliseconds(ns: int) -> str:
    """A moment, in ms to the µs, so that a column of them lines up: ``1,234.567``."""
    return f"{ns / 1e6:,.3f}"


def size(nbytes: int) -> str:
    """Bytes with three significant digits: ``512 B``, ``8.00 KiB``, ``1.50 MiB``."""
    if nbytes < 1024:
        return f"{nbytes} B"
    unit, factor = next((each for each in _SIZES if nbytes < 1023.5 * each[1]), _SIZES[-1])
    return f"{_three_digits(nbytes / factor)} {unit}"


def _three_digits(value: float) -> str:
    if value < 9.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"


def ticks(begin: float, end: float, most: int) -> list[tuple[float, str]]:
    """At most ``most`` round moments between two, in ns, each with its label in one unit."""
    span = max(end - begin, 1.0)
    step = 10.0 ** math.floor(math.log10(span / max(1, most)))
    step *= next(factor for factor in (1, 2, 5, 10, 20) if span / (step * factor) <= most)
    unit, factor = next(
        ((unit, factor) for unit, factor in _TIMES if step < 1_000 * factor), _TIMES[-1]
    )
    first = math.ceil(begin / step)
    return [
        (number * step, f"{number * step / factor:,.10g} {unit}")
        for number in range(first, math.floor(end / step) + 1)
    ]


def factor(value: float) -> str:
    """A number that may be very large, in few cells: ``12.5``, ``3.1e4``."""
    if value < 1000:
        return f"{value:.3g}"
    digits, _, power = f"{value:.1e}".partition("e")
    return f"{digits}e{int(power)}"


def percent(share: float) -> str:
    """A share with two significant digits, or to the whole: ``0.0021 %``, ``8.4 %``, ``100 %``."""
    value = 100 * share
    return f"{value:.2g} %" if value < 9.95 else f"{value:,.0f} %"


def plural(number: int, noun: str, several: str = "") -> str:
    """``1 node``, ``2 nodes``, ``12,345 nodes``; ``several`` where an s is not enough."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {several or f'{noun}s'}"


def ordinal(number: int) -> str:
    """``1st``, ``2nd``, ``11th``, ``1,023rd``."""
    ends = {1: "st", 2: "nd", 3: "rd"}
    end = "th" if number % 100 in {11, 12, 13} else ends.get(number % 10, "th")
    return f"{number:,}{end}"


def backward_passes(graph_tasks: int, reentrant: int) -> str:
    """``1 backward pass``, ``3 backward passes (and 12 reentrant ones)``."""
    outermost = graph_tasks - reentrant
    passes = "1 backward pass" if outermost == 1 else f"{outermost:,} backward passes"
    if not reentrant:
        return passes
    return f"{passes} (and {reentrant:,} reentrant {'one' if reentrant == 1 else 'ones'})"
