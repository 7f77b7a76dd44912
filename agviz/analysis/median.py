"""The median, without ``statistics``.

``python -m agviz`` looks for modules in the folder of the program first, where one of that name is
not rare, and this is imported with the command line.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def median(numbers: Iterable[float]) -> float:
    """The middle one; of an even count, half way between both.

    Raises:
        ValueError: there are none.
    """
    found = sorted(numbers)
    if not found:
        raise ValueError("no median of nothing")
    upper = len(found) // 2
    if len(found) % 2:
        return found[upper]
    return (found[upper - 1] + found[upper]) / 2
