"""Which screens are there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from textual.screen import Screen


def is_open(screen: Screen[Any]) -> bool:
    """Whether a screen has widgets: one that is left loses them before it is detached.

    Answers of the reader thread come in between.
    """
    return screen.is_attached and screen in screen.app.screen_stack
