"""Charts of one line, made of characters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_ASCII: Final = "_.:-=+*#"


def sparkline(values: Sequence[int], console: Console, top: int = 0) -> str:
    """One character for each of ``values``, which are not negative; the lowest means zero.

    The highest means the largest of them, or ``top`` where that is larger.
    """
    levels = _ASCII if console.options.ascii_only else _BLOCKS
    top = max([1, top, *values])
    return "".join(levels[-(-value * (len(levels) - 1) // top)] for value in values)


def size(count: int) -> str:
    """``1.50 MiB``: a number of bytes in the unit that suits it."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    if unit == "B":
        return f"{count} B"
    decimals = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{decimals}f} {unit}"
