"""States of modules that the program loaded or saved: written and read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agviz.words.safe import clean

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

FACT: Final = "module_states"
"""Its key in ``meta``."""
SAME: Final = "same"
"""A load was given the very memory that it loads into."""
EQUAL: Final = "equal"
"""A load was given what the parameters were already, while an older state is alive."""
SAVED: Final = "saved"
"""``torch.save`` was given the memory of parameters, taken before steps that changed it."""
UNUSED: Final = "unused"
"""A load used next to nothing of the state, and gave next to no parameter a value."""


class StateFact(NamedTuple):
    """One load or save that does not do what it seems to."""

    kind: str
    at: tuple[str, int, str]
    """File, line and function that called it."""
    taken: tuple[str, int, str] | None
    """The same of what took the state by ``state_dict()``; None: not known."""
    steps: int
    """Of optimizers, between the two; of what was not used, before it."""
    is_again: bool
    """Whether the line that took it did so at different steps."""
    missing: int
    """Parameters that the state had nothing for."""
    parameters: int
    more: str
    """What names of the state begin with besides, or the entry in which the state is."""
    less: str
    """What names of the parameters begin with besides."""


def read(rows: Iterable[Any]) -> Iterator[StateFact]:
    """The facts in a list as JSON has it.

    Raises:
        TypeError: it is something else.
        ValueError: it is something else.
    """
    for kind, at, taken, steps, is_again, missing, count, more, less in rows:
        own = None if taken is None else _place(taken)
        counts = int(steps), bool(is_again), int(missing), int(count)
        yield StateFact(clean(kind), _place(at), own, *counts, clean(more), clean(less))


def _place(value: Any) -> tuple[str, int, str]:
    file, line, function = value
    return clean(file), int(line), clean(function)
