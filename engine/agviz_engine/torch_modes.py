"""Modes of torch as they really are, whatever the program is shown of them.

Provenance shows the program an anomaly mode of its own (:mod:`agviz.record.provenance`), so what
has to meet torch's own functions imports this module before that begins.
"""

from __future__ import annotations

import functools
import operator
import os
import threading
from typing import TYPE_CHECKING, Any, cast

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

_C = cast("Any", torch._C)
is_anomaly_enabled = _C.is_anomaly_enabled
is_anomaly_check_nan_enabled = _C.is_anomaly_check_nan_enabled
set_anomaly_enabled = _C.set_anomaly_enabled
_INTO_AND_OUT = _C._vmapmode_increment_nesting, _C._vmapmode_decrement_nesting
"""Called in one go, in which no handler of a signal can strike: the level would stay."""


def legacy_vmap_level() -> int:
    """How many levels of ``torch._vmap_internals.vmap`` this thread is in."""
    level, _ = map(operator.call, _INTO_AND_OUT)
    return int(level) - 1


def leave_legacy_vmap() -> int:
    """Leave all of its levels; how many they were."""
    levels = legacy_vmap_level()
    for _ in range(levels):
        _C._vmapmode_decrement_nesting()
    return levels


def enter_legacy_vmap(levels: int) -> None:
    """Enter so many levels again."""
    for _ in range(levels):
        _C._vmapmode_increment_nesting()


class FlagsPause:
    """Flags of the process are off while there is a native call that they would disturb.

    The calls of several threads share one pause.
    """

    def __init__(self, read: Callable[[], tuple[bool, ...]], write: Callable[..., None]) -> None:
        self._read = read
        self._write = write
        self._lock = threading.RLock()
        self._calls = 0
        self._before: tuple[bool, ...] = ()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    @property
    def flags(self) -> tuple[bool, ...]:
        """The flags as they are without the pause."""
        with self._lock:
            return self._before if self._calls else self._read()

    def write(self, *flags: bool) -> None:
        """Set the flags, during a pause for when it ends."""
        with self._lock:
            if self._calls:
                self._before = flags
            else:
                self._write(*flags)

    def __enter__(self) -> None:
        with self._lock:
            self._calls += 1
            if self._calls == 1:
                self._before = self._read()
                self._write(*[False] * len(self._before))

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._calls -= 1
            if self._calls == 0:
                self._write(*self._before)

    def _forked(self) -> None:
        """End the pause of threads that do not exist in a forked child."""
        self._lock = threading.RLock()
        if self._calls:
            self._calls = 0
            self._write(*self._before)


anomaly_pause = FlagsPause(
    lambda: (is_anomaly_enabled(), is_anomaly_check_nan_enabled()), set_anomaly_enabled
)
"""While hosts abort: torch would warn with the stack of an error."""


@functools.cache
def inplace_hint() -> str:
    """What torch's message about a modified saved tensor ends with, without anomaly mode."""
    said: list[str] = []

    def ask() -> None:
        result: Any = torch.ones((), requires_grad=True).exp()
        result.detach().zero_()
        with anomaly_pause:
            try:
                result = result.grad_fn._saved_result
            except RuntimeError as error:
                said.append(str(error).partition(" instead.")[2])

    ask_apart(ask)
    return "".join(said)


def ask_apart(ask: Callable[[], None]) -> None:
    """Call it where no mode and no hook of the program is in force, and nodes have own numbers.

    That is on a thread of its own.
    """
    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
