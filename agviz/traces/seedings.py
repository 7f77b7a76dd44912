"""Seeds that were set again and again in the midst of a training: written and read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agviz.words.safe import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

FACT: Final = "seedings"
"""Its key in ``meta``."""


class SeedFact(NamedTuple):
    """One seed that one place set more than once between steps of one optimizer."""

    seed: int
    times: int
    """Times that it was set so, with something drawn since the time before."""
    steps: int
    """Of optimizers, between the first time and the last."""
    lines: Sequence[tuple[str, int, str]]
    """Files, lines and functions of the program that called it, innermost first."""


def read(rows: Iterable[Any]) -> Iterator[SeedFact]:
    """The facts in a list as JSON has it.

    Raises:
        TypeError: it is something else.
        ValueError: it is something else.
    """
    for seed, times, steps, lines in rows:
        places = [(clean(file), int(line), clean(function)) for file, line, function in lines]
        yield SeedFact(int(seed), int(times), int(steps), places)
