"""How much memory an export takes."""

from __future__ import annotations

import gc
import tracemalloc
from typing import TYPE_CHECKING

from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path


def peak_bytes(path: Path, export: Callable[[Trace], Iterable[str]]) -> int:
    """The most bytes that Python objects held at a time while the trace ``path`` was exported.

    The collector begins anew, or garbage would be counted in one call and not in the next.
    """
    gc.collect()
    tracemalloc.start()
    try:
        with Trace.open(path) as trace:
            for _ in export(trace):
                pass
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
