"""Capturing the Python stack of a thread, quickly enough to do it for every node.

A captured stack is code objects and the positions in them. Nothing is formatted until it is read.

Note [Captured stacks]
``capture.c`` captures where installing agviz built it, and torch's ``gather_traceback`` elsewhere.
Torch resolves what it captured by ``symbolize_tracebacks``, which first imports its compiler: a
second in which no other thread runs, and 800 modules that the program may never need. So both are
read where they lie: torch's is a ``torch::CapturedTraceback``, which begins with its vtable and a
vector of code objects and instructions. What was captured here is held against Python's own frames
before any of that is believed.

Note [No frame of ours]
Where torch captures, the function that does it is put together from C functions of the standard
library. A Python function would be a frame that torch.compile looks at, that a debugger steps into,
and that counts towards the limit of recursion. It runs between large operations, whose data drive
all else out of the processor's caches, and each object that the garbage collector knows brings the
next collection nearer: the fewer the steps and objects, the better. Hence ``capture.c``, whose
objects the collector does not know.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import itertools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agviz_engine import checked_memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

MOST_FRAMES: Final = 400
"""Frames kept of one stack, the innermost."""
_MOST_CALLERS: Final = 12
_FILE: Final = Path(__file__).with_name("_capture.so")
_WORD: Final = ctypes.sizeof(ctypes.c_void_p)


class Way(NamedTuple):
    """How stacks are captured. To all who join what either function gives, it is an empty stack."""

    one: Callable[[], Any]
    """Captures the stack of this thread, from the calling frame on."""
    some: Callable[[int], Callable[[], Any]]
    """Gives a function that does so for so many stacks, and then gives empty ones."""


class _Wrapped(itertools.repeat):  # type: ignore[type-arg] # the class takes no index
    """What torch captured, repeated zero times: to all who join it, an empty stack."""

    __slots__ = ()

    def copy(self) -> list[str]:
        """An empty stack. Torch's compilers take a copy to append to."""
        return []


class _Position(ctypes.Structure):
    _fields_ = (("code", ctypes.py_object), ("instruction", ctypes.c_int))


@functools.cache
def way() -> Way | None:
    """The quickest way that works here; None: stacks can't be captured."""
    return next((each for each in (_compiled(), by_torch()) if each and _works(each)), None)


def is_built() -> bool:
    """Whether compiled code captures."""
    return _compiled() is not None and way() == _compiled()


@functools.cache
def _compiled() -> Way | None:
    if object.__basicsize__ != 2 * _WORD:  # a build of Python with more in each object
        return None
    try:
        library = ctypes.PyDLL(str(_FILE))
        library.agviz_functions.restype = ctypes.py_object
        one, some, nothing = library.agviz_functions()
    except (OSError, AttributeError):  # not built, or for another machine or version
        return None
    allow = library.agviz_allow
    allow.argtypes, allow.restype = (ctypes.c_int64,), None

    def renewed(most: int) -> Callable[[], Any]:
        allow(most)
        return some  # type: ignore[no-any-return]

    _empty[type(nothing)] = nothing
    return Way(one, renewed)


_empty: dict[type, object] = {}
"""The empty stack of compiled code by its type, which is that of all it captures; once loaded."""


def by_torch() -> Way:
    """With torch's own function."""
    import torch

    gather: Any = torch._C._profiler.gather_traceback  # python, script, cpp

    def some(most: int) -> Callable[[], Any]:
        no = itertools.repeat(False)
        stacks = map(gather, itertools.repeat(True, most), no, no)
        wrapped = map(_Wrapped, stacks, itertools.repeat(0))
        return functools.partial(next, wrapped, _Wrapped(None, 0))

    return Way(functools.partial(gather, True, False, False), some)


def unwrapped(found: object) -> Any:
    """What :func:`memory` reads of what a function of :class:`Way` gave; None: it is empty.

    Anything else is given back as it is.
    """
    kind = type(found)
    if kind in _empty:
        return None if found is _empty[kind] else found
    if isinstance(found, _Wrapped):
        (found,) = (each for each in gc.get_referents(found) if each is not _Wrapped)
    return found


def _words(address: int, count: int) -> list[int]:
    return list((ctypes.c_size_t * count).from_address(address))


def memory(captured: object, words: Callable[[int, int], list[int]] = _words) -> tuple[int, int]:
    """Where the positions of a captured stack begin and end."""
    at = id(captured) + object.__basicsize__
    if type(captured) in _empty:
        (count,) = words(at, 1)
        begin = at + _WORD
        return begin, begin + count * ctypes.sizeof(_Position)
    (at,) = words(at, 1)
    begin, end = words(at + _WORD, 2)
    return begin, end


def positions(begin: int, end: int) -> list[tuple[CodeType, int]]:
    """Code and instruction of the frames that lie there, outermost first."""
    count = min((end - begin) // ctypes.sizeof(_Position), MOST_FRAMES)
    frames = (_Position * count).from_address(begin)
    return [(frame.code, frame.instruction) for frame in reversed(frames)]


def callers(frame: FrameType | None) -> tuple[tuple[CodeType, int], ...]:
    """Code and instruction of a frame and its callers, innermost first.

    To find the line takes longer, and is seldom asked for. So many that behind torch's own there
    is one of the program.
    """
    found: list[tuple[CodeType, int]] = []
    while frame is not None and len(found) < _MOST_CALLERS:
        found.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return tuple(found)


def line_of(code: CodeType, instruction: int) -> int:
    """The line of an instruction in :func:`positions`, or of a frame's ``f_lasti``."""
    for begin, end, line in code.co_lines():
        if begin <= instruction < end:
            return line or code.co_firstlineno
    return code.co_firstlineno


def _checked(address: int, count: int) -> list[int]:
    """As :func:`_words`, wherever that leads."""
    found: list[int] = []
    while len(found) < count:
        here = address // _WORD + len(found)
        found += checked_memory.words(here, min(count - len(found), checked_memory.MOST))
    return found


def _works(each: Way) -> bool:
    """Whether what it captures here is where it is looked for."""
    import torch

    kind = torch._C._profiler.CapturedTraceback
    if kind.__basicsize__ < object.__basicsize__ + _WORD:
        return False
    frame: Any = sys._getframe()
    captured = each.one()
    begin, end = memory(captured, _checked)
    if not begin < end <= begin + sys.getrecursionlimit() * ctypes.sizeof(_Position):
        return False
    words = _checked(begin, (end - begin) // _WORD)
    seen = [(words[i], words[i + 1] & 0xFFFFFFFF) for i in range(0, len(words) - 1, 2)]
    expected = []
    while frame is not None:
        expected.append((id(frame.f_code), frame.f_lasti))
        frame = frame.f_back
    expected = expected[: len(seen)] if len(seen) == MOST_FRAMES else expected
    return seen[0][0] == expected[0][0] and seen[1:] == expected[1:]
