"""Where the program turned gradients off: ``no_grad``, ``set_grad_enabled(False)``.

torch says whether gradients are on, not since which line they are off. All its Python ways to turn
them off make a ``set_grad_enabled``, so its ``__init__`` is wrapped while a recording goes on; what
was there is put back after it. Compiled code, and ``inference_mode``, do not come this way.
"""

from __future__ import annotations

import functools
import sys
import threading
from typing import TYPE_CHECKING, Any

from agviz.record.capturing import callers, line_of

if TYPE_CHECKING:
    from agviz.traces.rows import Frame


class GradMode:
    """Remembers, for each thread, where gradients were turned off last."""

    def __init__(self) -> None:
        self._here = threading.local()
        self._native: Any = None
        self._ours: Any = None
        self.is_paused = False
        """Whether nobody will ask what is turned off now."""

    def start(self) -> None:
        """Begin to remember. Imports torch."""
        from torch.autograd.grad_mode import set_grad_enabled

        native = self._native = set_grad_enabled.__init__
        here, grad_mode = self._here, self

        @functools.wraps(native)
        def init(self: Any, mode: bool) -> None:
            native(self, mode)
            here.places = None if mode or grad_mode.is_paused else callers(sys._getframe(1))

        set_grad_enabled.__init__ = init  # type: ignore[method-assign]
        self._ours = init

    def stop(self) -> None:
        """Put back what was there, unless somebody has wrapped it since."""
        from torch.autograd.grad_mode import set_grad_enabled

        if self._native is not None and set_grad_enabled.__init__ is self._ours:
            set_grad_enabled.__init__ = self._native  # type: ignore[method-assign]
        self._native = None

    def disabled_at(self, files: Any) -> tuple[Frame, ...]:
        """Where this thread turned gradients off last, outermost frame first; empty: not known.

        Args:
            files: gives files the names that a reader knows them by.
        """
        places = getattr(self._here, "places", None) or ()
        return tuple(
            files.frame(code.co_filename, line_of(code, instruction), code.co_name)
            for code, instruction in reversed(places)
        )
