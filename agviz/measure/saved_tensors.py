"""What a node saved for backward, looked at without a call of the program's hooks.

Note [Saved tensors of older releases]
A ``SavedTensor`` of torch shows what it holds. Those of older releases (2.6 to 2.9 were tried) do
not: only to unpack one gives the tensor, and that calls the hooks that packed it, of which
checkpointing is made. So while a recording goes on, it is noted between which sequence numbers
there were such hooks. What nodes of these numbers saved stays unknown, as it does for nodes made
before that. Hooks that the program registers on a single ``SavedTensor`` are not noticed.
"""

from __future__ import annotations

import functools
import math
import threading
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Final, cast

import torch
from torch.autograd.graph import saved_tensors_hooks

from agviz_engine.alive import instances

if TYPE_CHECKING:
    from collections.abc import Callable

_autograd: Any = cast("Any", torch._C)._autograd
_OF_A_FUNCTION: Final = "_raw_saved_tensors"
_MOST_STRETCHES: Final = 10_000
"""Remembered; after that, what lies between the older half counts as hooked, too."""


class Unpacked:
    """What a ``SavedTensor`` holds, by the names that it has in newer releases."""

    __slots__ = ("data", "unpack_hook")

    def __init__(self, data: Any, unpack_hook: str | None = None) -> None:
        self.data = data
        """The tensor, what a hook packed, or None."""
        self.unpack_hook = unpack_hook
        """None: no hook has packed it."""


_PACKED: Final = Unpacked("", "not known")


class PackingHooks:
    """Notes where there are hooks for saved tensors: Note [Saved tensors of older releases]."""

    def __init__(self) -> None:
        self._uses = 0
        self._first = 0
        self._stretches: list[tuple[int, int]] = []
        """Sequence numbers, without the second of each pair, ascending and apart."""
        self._open: list[int] = []
        """Where those began that are in force on any thread."""
        self._here = threading.local()
        self._lock = threading.RLock()
        self._own: tuple[Any, Any] = (None, None)

    def start(self) -> None:
        """Begin to note; calls are counted."""
        with self._lock:
            self._uses += 1
            if self._uses > 1:
                return
            self._first = _autograd._get_sequence_nr()
            if instances(saved_tensors_hooks):
                # They may be in force, and nobody will say till when.
                self._open.append(self._first)
            hooks: Any = saved_tensors_hooks
            self._own = enter, leave = hooks.__enter__, hooks.__exit__

            @functools.wraps(enter)
            def entered(context: Any) -> Any:
                result = enter(context)
                begin = _autograd._get_sequence_nr()
                self._here.__dict__.setdefault("begun", []).append(begin)
                with self._lock:
                    self._open.append(begin)
                return result

            @functools.wraps(leave)
            def left(context: Any, *error: Any) -> Any:
                begun = self._here.__dict__.get("begun")
                if begun:
                    self._note(begun.pop(), _autograd._get_sequence_nr())
                return leave(context, *error)

            hooks.__enter__, hooks.__exit__ = entered, left

    def stop(self) -> None:
        """Note no longer, once all have stopped."""
        with self._lock:
            self._uses -= 1
            if not self._uses:
                hooks: Any = saved_tensors_hooks
                hooks.__enter__, hooks.__exit__ = self._own
                self._stretches.clear()
                self._open.clear()

    def may_have_packed(self, node: Any) -> bool:
        """Whether a hook of the program may have packed what a node saved."""
        number = node._sequence_nr()
        if not self._uses or number < self._first:
            return True
        with self._lock:
            if number >= min(self._open, default=math.inf):
                return True
            place = bisect_right(self._stretches, (number, math.inf)) - 1
            return place >= 0 and number < self._stretches[place][1]

    def _note(self, begin: int, end: int) -> None:
        with self._lock:
            if begin in self._open:  # else all had stopped meanwhile
                self._open.remove(begin)
            if begin == end:
                return
            stretches = self._stretches
            place = bisect_right(stretches, (begin, math.inf))
            if place and stretches[place - 1][1] >= begin:
                place -= 1
                begin = stretches[place][0]
            after = place
            while after < len(stretches) and stretches[after][0] <= end:
                end = max(end, stretches[after][1])
                after += 1
            stretches[place:after] = [(begin, end)]
            if len(stretches) > _MOST_STRETCHES:
                older = _MOST_STRETCHES // 2
                stretches[:older] = [(stretches[0][0], stretches[older - 1][1])]


class _NoPackingHooks(PackingHooks):
    """Where nothing has to be noted."""

    def start(self) -> None:
        """Begin nothing."""

    def stop(self) -> None:
        """End nothing."""


def _unpacked(node: Any, attribute: str) -> Any:
    """As an attribute ``_raw_saved_…`` of a node, whose values have the parts of Unpacked."""
    if packing_hooks.may_have_packed(node):
        one = getattr(node, attribute)  # which raises where it was released
        return [_PACKED] * len(one) if isinstance(one, tuple | list) else _PACKED
    is_function = attribute == _OF_A_FUNCTION
    with cast("Any", torch._C).DisableTorchFunction():
        value = getattr(node, "saved_tensors" if is_function else attribute.removeprefix("_raw"))
    if isinstance(value, tuple | list):
        return [Unpacked(one) for one in value]
    return Unpacked(value)


shows_contents: Final = hasattr(_autograd.SavedTensor, "unpack_hook")
"""Whether a ``SavedTensor`` of this torch shows what it holds."""
raw_saved: Callable[[Any, str], Any] = getattr if shows_contents else _unpacked
"""Gives what a node has saved under a name that begins with ``_raw_saved_``; not unpacked."""
packing_hooks = _NoPackingHooks() if shows_contents else PackingHooks()
