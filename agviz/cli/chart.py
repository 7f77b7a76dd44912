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
