"""The locals of frames that run, read so that nothing of the program changes.

Note [Locals of others]
Before Python 3.13, to read the locals of a frame leaves a copy of them at the frame, which would
keep tensors alive for as long as the function runs. The copy is emptied again, unless the program
holds it, as what ``locals()`` gave. A frame that a debugger traces is left alone: Python takes its
locals from that copy when the trace function returns.
"""

from __future__ import annotations

import contextlib
import dis
import inspect
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import FrameType

_RESUME: Final = dis.opmap["RESUME"]
"""A frame that is there, and has called somebody, is being traced at the call of its function."""
_OWN_REFERENCES: Final = 4
"""To a copy of locals that nobody else holds: those of the frame, of :func:`locals_of`, of its
caller and of the question."""


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
