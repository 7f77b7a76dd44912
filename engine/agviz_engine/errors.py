"""The errors of the engine itself. What a node or a hook raises is passed on as it is."""

from __future__ import annotations


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
