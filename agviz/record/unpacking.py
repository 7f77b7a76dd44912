"""What the program's hooks for saved tensors unpacked, remembered for a moment.

A node that is looked at in a second run unpacks what it saved a second time, and the hooks that the
program has for that (checkpointing, ``save_on_cpu``) may be called once only.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from typing import TYPE_CHECKING, Any

from torch.autograd.graph import saved_tensors_hooks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agviz.record.aten_calls import AtenCalls


class _UnpackState(threading.local):
    given: list[Any] | None = None
    """What was unpacked since the first run began, the last first once it is given again."""
    is_again = False
    calls: AtenCalls | None = None
    """Takes down the calls of a custom Function, to which those of a hook do not belong."""


_here = _UnpackState()


def start() -> Callable[[], None]:
    """Remember what hooks unpack that are made from now on; returns what ends it."""
    hooks: Any = saved_tensors_hooks
    before = hooks.__init__

    @functools.wraps(before)
    def init(self: Any, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]) -> None:
        before(self, pack_hook, _remembering(unpack_hook))

    def stop() -> None:
        if hooks.__init__ is init:
            hooks.__init__ = before

    hooks.__init__ = init
    return stop


@contextlib.contextmanager
def first_run() -> Iterator[list[Any]]:
    """Remember what is unpacked on this thread."""
    before = _here.given
    found: list[Any] = []
    _here.given = found
    try:
        yield found
    finally:
        _here.given = before


@contextlib.contextmanager
def second_run(found: list[Any]) -> Iterator[None]:
    """Give the same again, in the same order."""
    before = _here.given, _here.is_again
    _here.given, _here.is_again = found[::-1], True
    try:
        yield
    finally:
        _here.given, _here.is_again = before


@contextlib.contextmanager
def only_run(calls: AtenCalls) -> Iterator[None]:
    """Keep what hooks call apart from ``calls``."""
    before = _here.calls
    _here.calls = calls
    try:
        yield
    finally:
        _here.calls = before


def _remembering(unpack: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(unpack)
    def unpacked(packed: Any) -> Any:
        given, calls = _here.given, _here.calls
        if calls is not None:
            _here.calls = None
            try:
                with calls.paused():
                    return unpack(packed)
            finally:
                _here.calls = calls
        if given is None:
            return unpack(packed)
        if _here.is_again:
            if not given:
                raise RuntimeError("the node unpacks more in a second run")
            return given.pop()
        _here.given = None  # what the hook itself has unpacked is another node's
        try:
            result = unpack(packed)
        finally:
            _here.given = given
        given.append(result)
        return result

    return unpacked
