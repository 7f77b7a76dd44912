"""Numbers in words, as all of agviz says them."""

from __future__ import annotations


def duration(ns: float) -> str:
    """A time in the unit that suits it, with three digits: ``12.3 ms``."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        value = ns / size
        if value >= 0.9995 or unit == "µs":
            break
    decimals = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:,.{decimals}f} {unit}"


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
