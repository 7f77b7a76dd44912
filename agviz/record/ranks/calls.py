"""Which lines of the program call collectives.

All public functions of ``torch.distributed``, from wherever they were imported, call a method of
``ProcessGroup``. Those methods give way to ones that capture the stack first (a microsecond).
What C++ calls, such as DDP's reducer, has no line.

Note [Handed in]
Ranks that reduce the same tensors in another order call the same operation, with the same shapes,
at the same line: what differs is which tensor they hand in. It is known by the variables of the
program that are this very object, in the frames that led to the call, and by its keys in the
dictionaries that are variables there. No code of the program runs for that, and only the first
calls are looked at (some 40 µs each).
"""

from __future__ import annotations

import functools
import itertools
import logging
import sys
import threading
import time
from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agviz.record.frame_locals import locals_of
from agviz_engine.errors import comes_from_outside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import FrameType

    from agviz.record.files import Files
    from agviz.record.ranks.black_box import BlackBox
    from agviz.traces.rows import Frame

log = logging.getLogger("agviz")

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
ALIKE: Final = frozenset({"all_reduce", "all_gather", "reduce_scatter"})
"""Operations for which all ranks have to hand in the same."""
MOST_NAMED: Final = 256
"""Calls whose tensor is looked for among the variables of the program."""
_MOST_KEPT: Final = 4_096


class Called(NamedTuple):
    """A call of a collective."""

    begin_ns: int
    end_ns: int
    ident: int
    captured: Any
    """The stack."""
    names: tuple[str, ...]
    """What the program calls the tensor that it handed in; empty: that was not looked for."""


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
        self._called: deque[Called] = deque(maxlen=_MOST_KEPT)
        self._looked = 0
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
        is_alike = _METHODS[name] in ALIKE

        @functools.wraps(own)
        def call(*args: Any, **kwargs: Any) -> Any:
            begin_ns, captured = time.monotonic_ns(), capture()
            names = self._names_of(args) if is_alike else ()
            box = self._box()
            if box is not None:
                group = str(getattr(args[0], "group_name", "")) if args else ""
                what = _METHODS[name], _shapes(args), _dtypes(args)
                box.called(self._place()[0], what, self._line(), group)
            try:
                return own(*args, **kwargs)
            finally:
                now_ns, ident = time.monotonic_ns(), threading.get_ident()
                called.append(Called(begin_ns, now_ns, ident, captured, names))

        call._torchdynamo_disable = True  # type: ignore[attr-defined]  # Dynamo runs it as it is
        return call

    def _line(self) -> str:
        """The innermost line of the program on this thread."""
        return next((str(found) for found, _ in self._frames(sys._getframe(2))), "")

    def _frames(self, frame: FrameType | None) -> Iterator[tuple[Frame, FrameType]]:
        """Those of the program from ``frame`` on, the innermost first."""
        for _ in range(_MOST_FRAMES):
            if frame is None:
                return
            code = frame.f_code
            found = self._files.frame(code.co_filename, frame.f_lineno, code.co_name)
            if not found.hidden:
                yield found, frame
            frame = frame.f_back

    def _names_of(self, args: tuple[Any, ...]) -> tuple[str, ...]:
        """What the program calls the only tensor that a method was given: Note [Handed in]."""
        tensors = _first(args)
        if len(tensors) != 1 or self._looked >= MOST_NAMED:
            return ()
        self._looked += 1
        found: list[str] = []
        try:
            for _, frame in itertools.islice(self._frames(sys._getframe(2)), _CALLERS):
                with locals_of(frame) as variables:
                    found += _names_in(variables, tensors[0])
        except Exception as error:
            if comes_from_outside(error):
                raise
            self._looked = MOST_NAMED
            log.warning("names of what collectives are given are no longer recorded (%r)", error)
            return ()
        return tuple(dict.fromkeys(found))[:_MOST_NAMES]

    def at(self) -> Callable[[int, int], Called | None]:
        """A function that gives the call, by thread and time; None: none was seen.

        A collective is noted while it is called; the clocks differ by some microseconds.
        """
        calls = sorted(self._called)

        def find(ident: int, time_ns: int) -> Called | None:
            place = bisect_left(calls, (time_ns + _SLACK_NS,))
            for one in calls[max(0, place - _NEAR) : place][::-1]:
                if one.ident == ident and one.end_ns + _SLACK_NS >= time_ns:
                    return one
            return None

        return find


def _names_in(variables: Mapping[str, Any], tensor: Any) -> Iterator[str]:
    """Names of a tensor among variables: its own, and its keys in dictionaries."""
    # Lists, because other threads may write to globals and dictionaries meanwhile.
    for name, value in list(itertools.islice(variables.items(), _MOST_VARIABLES)):
        if value is tensor:
            yield name
        elif type(value) is dict and len(value) <= _MOST_VARIABLES:
            yield from (
                f"{name}[{key[:_MOST_LETTERS]!r}]"
                for key, each in list(value.items())
                if each is tensor and type(key) is str
            )


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
_CALLERS: Final = 3
"""Frames of the program whose variables are looked at."""
_MOST_VARIABLES: Final = 256
_MOST_NAMES: Final = 4
_MOST_LETTERS: Final = 40
_SLACK_NS: Final = 20_000
_NEAR: Final = 16
"""Calls of other threads that may have begun in between."""
