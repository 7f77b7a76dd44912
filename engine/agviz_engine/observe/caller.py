"""A call of torch's C++ in the name of whoever called the observer.

C++ warns in the name of the innermost frame of Python: that gives the file and line it shows, the
module that filters ask for, and where it notes that it has warned. Without agviz that is the line
of torch that calls the engine.
"""

from __future__ import annotations

import functools
import sys
from types import FunctionType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType


def call_as_caller(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call ``function`` from a frame with the globals, file and line of our caller's caller.

    Raises:
        BaseException: what ``function`` raises, without the frames of here in its traceback.
    """
    frame: Any = sys._getframe(1)
    while str(frame.f_globals.get("__package__")).startswith("agviz_engine"):
        frame = frame.f_back
    code = _code_at(frame.f_code.co_filename, frame.f_lineno)
    alias = FunctionType(code, frame.f_globals)
    del frame
    try:
        return alias(function, args, kwargs)
    except BaseException as error:
        here = error.__traceback__
        while here is not None and here.tb_frame.f_code in {call_as_caller.__code__, code}:
            here = here.tb_next
        error.__traceback__ = here
        raise


_call = lambda function, args, kwargs: function(*args, **kwargs)  # noqa: E731 - all on one line


@functools.lru_cache(maxsize=256)
def _code_at(file: str, line: int) -> CodeType:
    """That of :data:`_call`, as if it were on a line of a file."""
    code = cast("FunctionType", _call).__code__
    return code.replace(co_filename=file, co_firstlineno=line)
