"""Which screens are there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from textual.screen import Screen

T = TypeVar("T")


def is_open(screen: Screen[Any]) -> bool:
    """Whether a screen has widgets: one that is left loses them before it is detached.

    Answers of the reader thread come in between.
    """
    return screen.is_attached and screen in screen.app.screen_stack


def leave(screen: Screen[T], result: T) -> None:
    """Leave a screen with a result, unless another one is over it, or it was left already.

    A key that came since the answer was asked for may have done either, and Textual would take away
    whatever is in front.
    """
    if screen.is_active:
        screen.dismiss(result)
