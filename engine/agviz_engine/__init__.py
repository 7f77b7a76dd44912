"""agviz_engine: torch's autograd engine in Python, every step of it visible.

    with agviz_engine.installed(instrument):
        loss.backward()

Importing this package does not import torch; using what it lends does. Start reading at
:mod:`agviz_engine.events` (what can happen) and :mod:`agviz_engine.engine` (how it happens).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agviz_engine.api import (
        backward,
        grad,
        install,
        installed,
        is_installed,
        probe,
        uninstall,
    )
    from agviz_engine.backward_call import native
    from agviz_engine.device_policy import DevicePolicy
    from agviz_engine.errors import UnsupportedTorchError
    from agviz_engine.instruments import Instrument, Live

__all__ = [
    "DevicePolicy",
    "Instrument",
    "Live",
    "UnsupportedTorchError",
    "backward",
    "grad",
    "install",
    "installed",
    "is_installed",
    "native",
    "probe",
    "uninstall",
]

_HOMES = {
    "Instrument": "instruments",
    "Live": "instruments",
    "UnsupportedTorchError": "errors",
}
"""Of what does not need torch; all else is asked of the one that finds out whether torch fits."""


_NOT_OURS = {"Any", "TYPE_CHECKING", "annotations", "importlib"}
"""Names that are here, but are defined elsewhere."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'agviz_engine' has no attribute {name!r}")
    return getattr(importlib.import_module(f"agviz_engine.{_HOMES.get(name, 'api')}"), name)


def __dir__() -> list[str]:
    """What is lent, whether it was asked for yet or not, and the modules that are imported."""
    return sorted({*__all__, *(set(globals()) - _NOT_OURS)})
