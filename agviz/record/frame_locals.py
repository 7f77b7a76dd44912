"""Frames that run, and their locals, read so that nothing of the program changes.

Note [Locals of others]
Before Python 3.13, to read the locals of a frame leaves a copy of them at the frame, which would
keep tensors alive for as long as the function runs. The copy is emptied again, unless the program
holds it, as what ``locals()`` gave. A frame that a debugger traces is left alone: Python takes its
locals from that copy when the trace function returns.

Note [Frames and garbage]
Before Python 3.12, ``sys._current_frames()`` makes objects while it holds a lock of the
interpreter; what is collected as garbage meanwhile may wait for that lock, and the process is
stuck for ever (https://github.com/python/cpython/issues/106883).
"""

from __future__ import annotations

import contextlib
import dis
import gc
import inspect
import sys
import threading
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import FrameType

_RESUME: Final = dis.opmap["RESUME"]
"""A frame that is there, and has called somebody, is being traced at the call of its function."""
_OWN_REFERENCES: Final = 4
"""To a copy of locals that nobody else holds: those of the frame, of :func:`locals_of`, of its
caller and of the question."""


OWN_THREADS: Final = "agviz-"
"""Begins the names of threads that agviz has for itself."""
_collecting: Final = threading.RLock()


def frames_of_threads() -> dict[int, FrameType]:
    """The innermost frame of each thread, by the thread's identity; Note [Frames and garbage]."""
    if sys.version_info >= (3, 12):
        return sys._current_frames()
    with _collecting:
        is_enabled = gc.isenabled()
        gc.disable()
        try:
            return sys._current_frames()
        finally:
            if is_enabled:
                gc.enable()


def frames_of_others() -> dict[int, FrameType]:
    """The same of all threads but this one, and agviz's own."""
    ours = {each.ident for each in threading.enumerate() if each.name.startswith(OWN_THREADS)}
    ours.add(threading.get_ident())
    return {ident: frame for ident, frame in frames_of_threads().items() if ident not in ours}


@contextlib.contextmanager
def locals_of(frame: FrameType) -> Iterator[Mapping[str, Any]]:
    """The locals of a frame; nothing of one that is traced. Note [Locals of others].

    What is given is read inside of the block only; the caller has it under one name.
    """
    if frame.f_trace is not None or frame.f_code.co_code[frame.f_lasti] == _RESUME:
        yield {}
        return
    values: Any = frame.f_locals
    try:
        yield values
    finally:
        is_copy = sys.version_info < (3, 13) and frame.f_code.co_flags & inspect.CO_OPTIMIZED
        if is_copy and sys.getrefcount(values) <= _OWN_REFERENCES:
            values.clear()
