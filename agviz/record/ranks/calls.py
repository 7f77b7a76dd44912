"""Which lines of the program call collectives.

All public functions of ``torch.distributed``, from wherever they were imported, call a method of
``ProcessGroup``. Those methods give way to ones that capture the stack first (a microsecond).
What C++ calls, such as DDP's reducer, has no line.
"""

from __future__ import annotations

import functools
import sys
import threading
import time
from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.record.files import Files
    from agviz.record.ranks.black_box import BlackBox

_METHODS: Final = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "allgather": "all_gather",
    "_allgather_base": "all_gather",
    "allgather_coalesced": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather",
    "gather": "gather",
    "scatter": "scatter",
    "reduce_scatter": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "send": "send",
    "recv": "recv",
    "recv_anysource": "recv",
    "barrier": "barrier",
}
"""And the operations as the flight recorder names them."""
_MOST_KEPT: Final = 4_096


class _Called(NamedTuple):
    begin_ns: int
    end_ns: int
    ident: int
    captured: Any


class CollectiveCalls:
    """Observes them between :meth:`start` and :meth:`stop`.

    Args:
        capture: captures the stack of this thread.
        files: gives files the names that a reader knows them by.
        place: the last outermost graph task that had begun, and whether it has not ended.
        box: keeps the last call for the case that it ends the process; None: nothing does.
    """

    def __init__(
        self,
        capture: Callable[[], Any],
        files: Files,
        place: Callable[[], tuple[int, bool]],
        box: Callable[[], BlackBox | None],
    ) -> None:
        self._capture, self._files, self._place, self._box = capture, files, place, box
        self._called: deque[_Called] = deque(maxlen=_MOST_KEPT)
        self._own: dict[str, Any] = {}
        """What the class holds; a method that was looked up could not be put back: bound by nobody,
        it would be called without its group."""
        self._ours: dict[str, Any] = {}

    def start(self) -> None:
        """Take the place of the methods."""
        group: Any = sys.modules["torch.distributed"].ProcessGroup
        for name in _METHODS:
            own = vars(group).get(name)
            if own is not None and name not in self._own:
                self._own[name] = own
                self._ours[name] = self._calling(name, getattr(group, name))
                setattr(group, name, self._ours[name])

    def stop(self) -> None:
        """Put back what was there, unless somebody has replaced it since."""
        group: Any = sys.modules["torch.distributed"].ProcessGroup
        for name, ours in self._ours.items():
            if getattr(group, name) is ours:
                setattr(group, name, self._own[name])
        self._own.clear()
        self._ours.clear()

    def _calling(self, name: str, own: Callable[..., Any]) -> Callable[..., Any]:
        called, capture = self._called, self._capture

        @functools.wraps(own)
        def call(*args: Any, **kwargs: Any) -> Any:
            begin_ns, captured = time.monotonic_ns(), capture()
            box = self._box()
            if box is not None:
                group = str(getattr(args[0], "group_name", "")) if args else ""
                what = _METHODS[name], _shapes(args), _dtypes(args)
                box.called(self._place()[0], what, self._line(), group)
            try:
                return own(*args, **kwargs)
            finally:
                called.append(
                    _Called(begin_ns, time.monotonic_ns(), threading.get_ident(), captured)
                )

        call._torchdynamo_disable = True  # type: ignore[attr-defined]  # Dynamo runs it as it is
        return call

    def _line(self) -> str:
        """The innermost line of the program on this thread."""
        frame = sys._getframe(2)
        for _ in range(_MOST_FRAMES):
            found = self._files.frame(
                frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
            )
            if not found.hidden:
                return str(found)
            if frame.f_back is None:
                break
            frame = frame.f_back
        return ""

    def at(self) -> Callable[[int, int], Any]:
        """A function that gives what was captured, by thread and time; None: nothing was.

        A collective is noted while it is called; the clocks differ by some microseconds.
        """
        calls = sorted(self._called)

        def find(ident: int, time_ns: int) -> Any:
            place = bisect_left(calls, (time_ns + _SLACK_NS,))
            for one in reversed(calls[max(0, place - _NEAR) : place]):
                if one.ident == ident and one.end_ns + _SLACK_NS >= time_ns:
                    return one.captured
            return None

        return find


def _shapes(args: tuple[Any, ...]) -> str:
    """Of the first tensors that a method of ``ProcessGroup`` was given."""
    return ";".join(str(list(one.shape)) for one in _first(args))


def _dtypes(args: tuple[Any, ...]) -> str:
    return ";".join(str(one.dtype).removeprefix("torch.") for one in _first(args))


def _first(args: tuple[Any, ...]) -> list[Any]:
    first = args[1] if len(args) > 1 else None
    if isinstance(first, list | tuple):
        first = first[0] if first and isinstance(first[0], list | tuple) else first
        return list(first[:_MOST_SHAPES])
    return [] if getattr(first, "shape", None) is None else [first]


_MOST_SHAPES: Final = 8
_MOST_FRAMES: Final = 30
_SLACK_NS: Final = 20_000
_NEAR: Final = 16
"""Calls of other threads that may have begun in between."""
