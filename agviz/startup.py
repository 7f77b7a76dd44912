"""``AGVIZ=1``: record any Python process that imports torch.

``agviz.pth``, which ``agviz env --enable`` copies into site-packages, has every interpreter look at
that variable when it starts, and come here where it is set. Nothing is imported then that the
program may want to set up first; recording begins with torch, and a file is made when backward is
first called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agviz.after_import import after_import

if TYPE_CHECKING:
    from collections.abc import Callable

_forget: list[Callable[[], None]] = []


def begin() -> None:
    """Record from the import of torch on, until the process ends."""
    if not _forget:  # in a virtual environment Python reads such files twice
        _forget.append(after_import("torch", _start))


def is_asked_for() -> bool:
    """Whether it has begun, or will with torch."""
    return bool(_forget)


def cancel() -> None:
    """Don't; for agviz itself, whose commands say what they record."""
    while _forget:
        _forget.pop()()


def _start() -> None:
    from agviz.api import enable_at_first_backward

    enable_at_first_backward()
