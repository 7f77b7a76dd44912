"""A debugger for PyTorch's backward pass: see, step, rewind and compare its work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agviz.api import (
        AgvizError,
        DrawingError,
        Folder,
        Recorded,
        Trace,
        TraceError,
        disable,
        draw,
        enable,
        load,
        set_trace,
        trace,
        why,
    )
    from agviz.record.options import Options

__version__ = "0.1.0"

__all__ = [
    "AgvizError",
    "DrawingError",
    "Folder",
    "Options",
    "Recorded",
    "Trace",
    "TraceError",
    "__version__",
    "disable",
    "draw",
    "enable",
    "load",
    "set_trace",
    "trace",
    "why",
]


_NOT_OURS = {"Any", "TYPE_CHECKING", "annotations"}
"""Names in this module that belong to others."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'agviz' has no attribute {name!r}")
    if name == "draw":  # 60 ms of CPU, where the whole API takes 150
        from agviz.drawing import draw

        return draw
    from agviz import api

    return getattr(api, name)


def __dir__() -> list[str]:
    """What is lent, whether it was asked for yet or not, and the modules that are imported."""
    return sorted({*__all__, *(set(globals()) - _NOT_OURS)})
