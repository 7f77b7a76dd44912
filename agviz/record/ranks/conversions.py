"""Where the program converted a module, or put one into another, or a parameter.

A leaf whose dtype or device is changed by ``.to``, ``.float`` and the like gets a new
AccumulateGrad, without the hook of DDP's reducer; of a new parameter DDP knows nothing.
"""

from __future__ import annotations

import functools
import itertools
import threading
import weakref
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from agviz.record import capturing
from agviz.record.global_hooks import MODULE_PLACED, PARAMETER_PLACED, GlobalHooks

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module


class _Depth(threading.local):
    is_inside = False


class Conversions:
    """Observes ``Module._apply`` and what is registered between :meth:`start` and :meth:`stop`."""

    def __init__(self) -> None:
        self._last: weakref.WeakKeyDictionary[Module, tuple[int, Any]] = weakref.WeakKeyDictionary()
        """By module: what was captured when it was converted or put into another, or a parameter
        was put into it, in the order of numbers."""
        self._number = itertools.count().__next__
        self._hooks = GlobalHooks()
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
        depth, last, number, capture = self._depth, self._last, self._number, way.one

        @functools.wraps(own)
        def _apply(module: Module, *args: Any, **kwargs: Any) -> Any:
            if depth.is_inside:
                return own(module, *args, **kwargs)
            depth.is_inside = True
            try:
                last[module] = number(), capture()
                return own(module, *args, **kwargs)
            finally:
                depth.is_inside = False

        self._ours = _apply

        def placed(_module: Module, _name: str, submodule: Module) -> None:
            if submodule is not None:
                last[submodule] = number(), capture()

        def registered(module: Module, _name: str, _parameter: Tensor) -> None:
            last[module] = number(), capture()

        self._hooks.put(MODULE_PLACED, placed)
        self._hooks.put(PARAMETER_PLACED, registered)
        module_type: Any = torch.nn.Module
        module_type._apply = _apply

    def stop(self) -> None:
        """Put back what was there, unless somebody has replaced it since."""
        import torch

        self._hooks.clear()
        if self._ours is not None and torch.nn.Module._apply is self._ours:
            torch.nn.Module._apply = self._own  # type: ignore[method-assign]

    def of(self, parameter: Tensor) -> Any:
        """What was captured when a module with a parameter was changed last; None: never."""
        found = [
            change
            for module, change in list(self._last.items())
            if any(parameter is one for one in module.parameters())
        ]
        return max(found, key=itemgetter(0))[1] if found else None
