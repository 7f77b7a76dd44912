"""Where the program converted a module: ``.to``, ``.float`` and the like may replace leaves.

A leaf whose dtype or device changes gets a new AccumulateGrad, without the hook of DDP's reducer.
"""

from __future__ import annotations

import functools
import threading
import weakref
from typing import TYPE_CHECKING, Any

from agviz.record import capturing

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module


class _Depth(threading.local):
    is_inside = False


class Conversions:
    """Observes ``Module._apply`` between :meth:`start` and :meth:`stop`."""

    def __init__(self) -> None:
        self._last: weakref.WeakKeyDictionary[Module, Any] = weakref.WeakKeyDictionary()
        self._depth = _Depth()
        self._own: Any = None
        self._ours: Any = None

    def start(self) -> None:
        """Take its place, where stacks can be captured."""
        import torch

        way = capturing.way()
        if way is None:
            return
        own: Any = torch.nn.Module._apply
        self._own = own
        depth, last, capture = self._depth, self._last, way.one

        @functools.wraps(own)
        def _apply(module: Module, *args: Any, **kwargs: Any) -> Any:
            if depth.is_inside:
                return own(module, *args, **kwargs)
            depth.is_inside = True
            try:
                last[module] = capture()
                return own(module, *args, **kwargs)
            finally:
                depth.is_inside = False

        self._ours = _apply
        module_type: Any = torch.nn.Module
        module_type._apply = _apply

    def stop(self) -> None:
        """Put back what was there, unless somebody has replaced it since."""
        import torch

        if self._ours is not None and torch.nn.Module._apply is self._ours:
            torch.nn.Module._apply = self._own  # type: ignore[method-assign]

    def of(self, parameter: Tensor) -> Any:
        """What was captured when a module with a parameter was converted last; None: never."""
        found = None
        for module, captured in list(self._last.items()):
            if any(parameter is one for one in module.parameters()):
                found = captured
        return found
