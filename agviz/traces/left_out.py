"""Which backward passes are not in a file: for its size, or because only some were recorded."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from agviz.traces.database import Database


class LeftOut(NamedTuple):
    """Backward passes that were recorded and then left out, or that were not recorded.

    Of all that the program called from the first of them up to the last, none is in the file.
    """

    first: int
    """Graph task of the first of them."""
    last: int
    """Graph task of the last of them."""
    passes: int
    """Number of calls of backward and grad by the program."""
    reentrant: int
    """Number of calls inside those."""


def read(database: Database) -> list[LeftOut]:
    """All of them, in order. Raises TraceError where they make no sense."""
    rows = database.integers("SELECT first, last, passes, reentrant FROM left_out ORDER BY first")
    found = list(map(LeftOut._make, rows))
    if not all(
        0 <= each.first <= each.last and each.passes > 0 <= each.reentrant for each in found
    ):
        raise database.damaged("what was left out is no range")
    if any(one.last >= next_.first for one, next_ in pairwise(found)):
        raise database.damaged("what was left out is counted twice")
    return found
