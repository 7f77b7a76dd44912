"""Report unfinished backward passes on stderr, bypassing blocked streams."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from agviz.errors import TraceError
from agviz.words.safe import clean

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agviz.record.recorder import Recorder

TIMED_OUT: Final = 124
"""As ``timeout(1)`` has it."""
_STDERR: Final = 2
_SECONDS_TO_FLUSH: Final = 1.0


def say(sentence: str) -> None:
    """Print a sentence of agviz, not by way of ``sys.stderr``.

    A test or a notebook may have put something in its place, which may belong to a thread that
    hangs.
    """
    with contextlib.suppress(OSError):
        os.write(_STDERR, f"agviz: {clean(sentence)}\n".encode(errors="replace"))


def stop(recorder: Recorder, outcome: Callable[[], str]) -> None:
    """End the process soon with the exit code :data:`TIMED_OUT`, after its file is complete.

    A program that hangs can't be asked to end: no handler of it is called.

    Args:
        recorder: whose file it is.
        outcome: says what became of it.
    """

    def end() -> None:
        recorder.close()
        for stream in (sys.stdout, sys.stderr):
            flush = threading.Thread(target=_flush, args=(stream,), daemon=True)
            flush.start()
            flush.join(_SECONDS_TO_FLUSH)
        say(f"{outcome()}; the program is stopped")
        os._exit(TIMED_OUT)

    threading.Thread(target=end, name="agviz-stop", daemon=True).start()


def _flush(stream: Any) -> None:
    with contextlib.suppress(Exception):
        stream.flush()


def report(path: Path) -> None:
    """Print what holds the backward passes that are being recorded into ``path``."""
    from agviz.analysis.hang import hang
    from agviz.traces.reader import Trace

    try:
        with Trace.open(path) as trace:
            found = hang(trace, time.monotonic_ns())
            lines = () if found is None else (found.paragraph, *found.details())
    except TraceError as error:
        say(f"can't say where the threads are: {error}")
        return
    if found is None:
        say("no recorded backward pass is under way")
    for line in lines:
        say(line)
