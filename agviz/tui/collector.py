"""When the garbage collector runs: in the pauses of whoever types, not in the midst of a key."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_PAUSE_S: Final = 0.1
"""Without a key or the mouse; a key is answered before it is over."""
_LONG_PAUSE_S: Final = 1.0
_WORTH: Final = 1_000
"""Objects that have come: about what a key leaves behind."""
_YOUNG: Final = 50
"""Collections of what has come, until everything is gone through."""


class PauseCollector:
    """Collects what has become garbage once nobody types.

    By itself the collector runs where an object is made: every dozen keys it takes a quarter of the
    time of one, and now and then all of it. It still does where nobody ever pauses, but later.
    """

    def __init__(self) -> None:
        gc.freeze()  # widgets and the code stay; going through them takes longer than a key may
        gc.set_threshold(50_000, 10, 50)
        gc.enable()
        self._next: asyncio.TimerHandle | None = None
        self._collections = 0

    def stir(self) -> None:
        """Someone types, or moves the mouse."""
        self._in(_PAUSE_S, self._collect_young)

    def _in(self, seconds: float, collect: Callable[[], None]) -> None:
        if self._next is not None:
            self._next.cancel()
        self._next = asyncio.get_running_loop().call_later(seconds, collect)

    def _collect_young(self) -> None:
        if gc.get_count()[0] >= _WORTH:
            gc.collect(1)
            self._collections += 1
        if self._collections >= _YOUNG:
            self._in(_LONG_PAUSE_S, self._collect_all)

    def _collect_all(self) -> None:
        gc.collect()
        self._collections = 0
