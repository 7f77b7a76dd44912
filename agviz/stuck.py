"""Saying on stderr where backward passes stand, past whatever hangs."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Final

from agviz.analysis.hang import hang
from agviz.errors import TraceError
from agviz.traces.reader import Trace
from agviz.traces.text import clean

if TYPE_CHECKING:
    from pathlib import Path

_STDERR: Final = 2


def say(sentence: str) -> None:
    """Print a sentence of agviz, not by way of ``sys.stderr``.

    A test or a notebook may have put something in its place, which may belong to a thread that
    hangs.
    """
    with contextlib.suppress(OSError):
        os.write(_STDERR, f"agviz: {clean(sentence)}\n".encode(errors="replace"))


def tell(path: Path) -> None:
    """Print how the backward passes stand that are being recorded into ``path``."""
    try:
        with Trace.open(path) as trace:
            found = hang(trace, time.monotonic_ns())
            lines = () if found is None else (found.paragraph, *found.details())
    except TraceError as error:
        say(f"where the threads stand can't be told: {error}")
        return
    if found is None:
        say("no recorded backward pass is under way")
    for line in lines:
        say(line)
