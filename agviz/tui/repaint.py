"""Coalesce the repaint for a key press with the repaint for the reader's answer."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from textual.screen import Screen
    from textual.timer import Timer

_PATIENCE_S: Final = 0.012
"""The reader thread mostly answers sooner; where it does not, what is known is painted."""
_DRAWING_S: Final = 0.001
"""Panels need some turns of the loop to find what has changed in them."""


class Repaint:
    """Holds back what is to be painted until an answer came, or for as long as nobody notices.

    Two pictures in a row take twice the time of one, and the second has to wait for the next turn
    at which Textual paints.

    Args:
        screen: on which it is painted.
        patience_s: seconds that an answer may take; then what is known is painted.
    """

    def __init__(self, screen: Screen[None], patience_s: float = _PATIENCE_S) -> None:
        self._screen = screen
        self._patience_s = patience_s
        self._awaited = 0
        self._held = ExitStack()
        self._timer: Timer | None = None

    def wait(self) -> None:
        """One more answer is on its way."""
        self._awaited += 1
        if self._timer is None:
            self._held.enter_context(self._screen.app.batch_update())
            self._timer = self._screen.set_timer(self._patience_s, self.release)

    def came(self) -> None:
        """An answer has come, and was taken."""
        if self._awaited:
            self._awaited -= 1
            if not self._awaited and self._timer is not None:
                self._timer.stop()
                self._timer = self._screen.set_timer(_DRAWING_S, self.release)

    def release(self) -> None:
        """Paint what there is."""
        self._awaited = 0
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
            self._held.close()
            self._screen.check_idle()
