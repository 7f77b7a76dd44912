"""Which of how many processes this is."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from pathlib import Path
from typing import Any, Final

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")


def group_is_made() -> bool:
    """Whether this process has made its default process group; imports nothing."""
    distributed = sys.modules.get("torch.distributed")
    is_initialized = getattr(distributed, "is_initialized", None)
    return is_initialized is not None and bool(is_initialized())


def rank() -> int | None:
    """The rank of this process, by its process group or by what launched it; None: it has none."""
    if group_is_made():
        return int(sys.modules["torch.distributed"].get_rank())
    return _number("RANK")


def facts() -> dict[str, Any] | None:
    """What ``meta`` says of the rank (:class:`agviz.traces.rows.Rank`); None: there is none."""
    number = rank()
    if number is None:
        return None
    world_size, backend = _number("WORLD_SIZE"), ""
    if group_is_made():
        distributed = sys.modules["torch.distributed"]
        world_size = int(distributed.get_world_size())
        backend = str(distributed.get_backend())
    if world_size is None:
        return None
    return {
        "number": number,
        "world_size": world_size,
        "local_rank": _number("LOCAL_RANK"),
        "host": platform.node(),
        "boot": _boot(),
        "backend": backend,
    }


def _number(variable: str) -> int | None:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else None


def _boot() -> str:
    with contextlib.suppress(OSError, ValueError):
        return _BOOT.read_text(encoding="ascii").strip()
    return ""
