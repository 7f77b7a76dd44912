"""The errors of the engine itself. What a node or a hook raises is passed on as it is."""

from __future__ import annotations

import functools
import inspect
import signal
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from types import CodeType

_OURS: Final = {"agviz", "agviz_engine"}
_RAISED_BARE: Final = (AssertionError, MemoryError, StopIteration)
"""What code raises without arguments."""


class UnsupportedTorchError(RuntimeError):
    """``install()`` found that this torch lacks something the engine relies on."""


class AbortHost(BaseException):
    """Ends a native graph task that only hosts ours, before it runs any node of its own.

    Never seen by users. A ``BaseException``, so that no ``except Exception`` on the way eats it.
    """


def text_of(error: BaseException) -> str:
    """The exception's message; making it runs the user's code, which may fail in turn."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - whatever the user's __str__ raises
        return f"({type(error).__name__} has no text: its __str__ raised)"


def comes_from_outside(error: Exception) -> bool:
    """Whether ``error``, which struck code of ours, is the program's, which waits for it.

    A handler of a signal raised it (a timeout by SIGALRM, the DataLoader's for SIGCHLD), or another
    thread did (``PyThreadState_SetAsyncExc``): that makes an instance without arguments, at a line
    that calls nothing. Where we go on whatever happens, such an error has to go on as well.
    """
    traceback = error.__traceback__
    if traceback is None:
        return False
    handlers = {code for number in signal.valid_signals() if (code := _code(number)) is not None}
    while True:
        frame = traceback.tb_frame
        if frame.f_code in handlers:
            return True
        if traceback.tb_next is None:
            break
        traceback = traceback.tb_next
    is_ours = str(frame.f_globals.get("__package__")).partition(".")[0] in _OURS
    return is_ours and not error.args and not isinstance(error, _RAISED_BARE)


def _code(number: int) -> CodeType | None:
    """The code of the handler that a signal has in Python."""
    handler: Any = signal.getsignal(number)
    while isinstance(handler, functools.partial):
        handler = handler.func
    function = getattr(handler, "__func__", handler)
    if not hasattr(function, "__code__") and callable(handler):
        function = inspect.getattr_static(type(handler), "__call__")
    code: CodeType | None = getattr(function, "__code__", None)
    return code
