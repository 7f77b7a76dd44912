"""Classes of a screen by the size of the terminal, before its widgets are made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from textual.screen import Screen


def take_size_classes(screen: Screen[Any]) -> None:
    """Give a screen the classes that Textual gives it once its widgets are there.

    Textual then styles all of them again, which takes 10 ms of CPU.
    """
    size, app = screen.app.size, screen.app
    for extent, breakpoints in (
        (size.width, app.HORIZONTAL_BREAKPOINTS),
        (size.height, app.VERTICAL_BREAKPOINTS),
    ):
        fitting = [name for least, name in sorted(breakpoints or ()) if least <= extent]
        screen.add_class(*fitting[-1:])
