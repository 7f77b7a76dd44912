"""What a thread waits for, and which thread has it: a lock, a queue, a socket, another thread.

Only what Python knows of a thread that waits is read: the innermost line of the program, the call
on that line, and the objects that the call names, looked up without running any code.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import os
import re
import sys
import threading
import types
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agviz.record.frame_locals import locals_of
from agviz.traces.rows import BOUNDED, OWN_PROCESS, DumpedWait

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import CodeType, FrameType

    from agviz.record.files import Files
    from agviz.traces.rows import Frame

WAITING_LIBRARIES: Final = {
    "asyncio",
    "concurrent",
    "http",
    "multiprocessing",
    "queue",
    "select",
    "selectors",
    "socket",
    "ssl",
    "subprocess",
    "threading",
    "urllib",
}
"""Modules of Python whose functions wait for others."""
_WAITING: Final = {
    *("_io", "_multiprocessing", "_queue", "_socket", "_thread", "select", "socket", "sqlite3"),
}
"""Modules of types whose methods in C may wait."""
_FILE_LOCKS: Final = {"fcntl.flock", "fcntl.lockf"}
_FUNCTIONS: Final = _FILE_LOCKS | {
    *("input", "time.sleep", "select.select", "os.read", "os.wait", "os.waitpid"),
}
_DATABASE: Final = "sqlite3."
_KERNEL_LOCKS: Final = Path("/proc/locks")
_PENDING_BYTE: Final = 1 << 30
"""Where SQLite locks a database, unless that has a write-ahead log, as the recording has."""
_NAMES: Final = {"_thread.lock": "threading.Lock", "_thread.RLock": "threading.RLock"}
_OWNER: Final = re.compile(r"\bowner=(\d+)\b")
_DISTRIBUTED: Final = "torch.distributed"
_MOST_FRAMES: Final = 100
_ABSENT: Final = object()


class _Waiting(NamedTuple):
    what: str
    thing: Any
    """The object that it waits for, or by; None: not known, or it waits for some time only."""


class _Look:
    """One look at the threads.

    Args:
        innermost: the innermost frame of each thread.
        files: gives files the names that a reader knows them by.
    """

    def __init__(self, innermost: Mapping[int, FrameType], files: Files) -> None:
        self.innermost, self.files = innermost, files
        self._withs: dict[str, list[ast.With]] = {}

    def withs(self, file: str) -> list[ast.With]:
        """All ``with`` statements of a file, as Python names it."""
        found = self._withs.get(file)
        if found is None:
            nodes: Iterator[ast.AST] = iter(())
            with contextlib.suppress(SyntaxError, ValueError):
                nodes = ast.walk(ast.parse(self.files.whole_source(self.files.frame(file, 0, ""))))
            found = self._withs[file] = [node for node in nodes if isinstance(node, ast.With)]
        return found


def waits(innermost: Mapping[int, FrameType], files: Files) -> dict[int, DumpedWait]:
    """What threads wait for, by their identity; of those of which it is not known, nothing.

    Args:
        innermost: the innermost frame of each thread.
        files: gives files the names that a reader knows them by.
    """
    found, look = {}, _Look(innermost, files)
    for ident, frame in innermost.items():
        waiting = _waiting(frame, files)
        if waiting is not None:
            found[ident] = _with_holder(waiting, look)
    return found


def _waiting(innermost: FrameType, files: Files) -> _Waiting | None:
    inside: list[FrameType] = []
    for frame in _outwards(innermost):
        if not _is_hidden(frame, files):
            return _in_library(inside) if inside else _in_call(frame, files)
        inside.append(frame)
    return None


def _outwards(innermost: FrameType | None) -> Iterator[FrameType]:
    for _ in range(_MOST_FRAMES):
        if innermost is None:
            return
        yield innermost
        innermost = innermost.f_back


def _is_hidden(frame: FrameType, files: Files) -> bool:
    code = frame.f_code
    return files.frame(code.co_filename, frame.f_lineno or 0, code.co_name).hidden


def _in_library(inside: Sequence[FrameType]) -> _Waiting | None:
    """What a function of the library waits for, which a line of the program called.

    Args:
        inside: its frames, innermost first.
    """
    outermost = inside[-1]
    module = str(outermost.f_globals.get("__name__", ""))
    if module.startswith(_DISTRIBUTED):
        own = vars(sys.modules[_DISTRIBUTED])
        called = (frame.f_code.co_name for frame in reversed(inside))
        known = next((name for name in called if name in own), None)
        return None if known is None else _Waiting(f"{_DISTRIBUTED}.{known}", None)
    if module.partition(".")[0] not in WAITING_LIBRARIES:
        return None
    thing, is_bounded = None, False
    names = outermost.f_code.co_varnames
    if names and outermost.f_code.co_argcount:
        with locals_of(outermost) as values:
            thing = values.get(names[0])
            is_bounded = values.get("timeout") is not None
    qualified = outermost.f_code.co_qualname.rpartition("<locals>.")[2]
    kind = type(thing).__qualname__
    if "." in qualified and not isinstance(thing, type) and thing is not None:
        qualified = f"{kind}.{qualified.rpartition('.')[2]}"
    shown = ".".join(part for part in module.split(".") if not part.startswith("_"))
    return _bounded(f"{shown}.{qualified}", thing, is_bounded=is_bounded)


def _in_call(frame: FrameType, files: Files) -> _Waiting | None:
    """What a function written in C waits for, which a line of the program called."""
    entered = _expression(frame, files)
    method, is_bounded = "__enter__", False
    if isinstance(entered, ast.Call):
        if isinstance(entered.func, ast.Name) and entered.func.id in _FUNCTIONS:
            return _Waiting(entered.func.id, None)
        if not isinstance(entered.func, ast.Attribute):
            return None
        is_bounded = bool(entered.args or entered.keywords)
        method, entered = entered.func.attr, entered.func.value
    with locals_of(frame) as values:
        thing = _ABSENT if entered is None else _value(entered, values, frame.f_globals)
    kind = type(thing)
    if isinstance(thing, types.ModuleType):
        what = f"{thing.__name__}.{method}"
        return _Waiting(what, None) if what in _FUNCTIONS else None
    if kind.__module__ not in _WAITING:
        return None
    name = f"{kind.__module__}.{kind.__qualname__}"
    what = _NAMES.get(name) or f"{name.lstrip('_')}.{method}"
    return _bounded(what, thing, is_bounded=is_bounded)


def _bounded(what: str, thing: Any, *, is_bounded: bool) -> _Waiting:
    if is_bounded and what.startswith(("threading.", "queue.")):
        what += BOUNDED  # arguments of others say nothing of time
    return _Waiting(what, None if is_bounded else thing)


def _expression(frame: FrameType, files: Files) -> ast.expr | None:
    """The expression that a frame is at: a call, or what a ``with`` enters."""
    code = frame.f_code
    first, last, begin, end = next(
        islice(code.co_positions(), frame.f_lasti // 2, None), (None, None, None, None)
    )
    if first is None or last is None or begin is None or end is None:
        return None
    name = files.frame(code.co_filename, first, code.co_name)
    rows = files.whole_source(name).splitlines()[first - 1 : last]
    if len(rows) != last - first + 1:
        return None
    encoded = [row.encode() for row in rows]
    encoded[-1] = encoded[-1][:end]
    encoded[0] = encoded[0][begin:]
    text = b"\n".join(encoded).decode(errors="replace")
    for source in (f"({text})", text):
        with contextlib.suppress(SyntaxError, ValueError):
            found = ast.parse(source).body[0]
            if isinstance(found, ast.Expr):
                return found.value
            if isinstance(found, ast.With) and len(found.items) == 1:
                return found.items[0].context_expr
    return None


def _value(node: ast.expr, values: Mapping[str, Any], around: Mapping[str, Any]) -> Any:
    """What names and attributes refer to; :data:`_ABSENT` where that can't be had as data."""
    if isinstance(node, ast.Name):
        found = values.get(node.id, _ABSENT)
        return around.get(node.id, _ABSENT) if found is _ABSENT else found
    if isinstance(node, ast.Attribute):
        owner = _value(node.value, values, around)
        return _ABSENT if owner is _ABSENT else _field(owner, node.attr)
    return _ABSENT


def _field(owner: Any, name: str) -> Any:
    """An attribute that is plain data: nothing of its class is called."""
    found = inspect.getattr_static(owner, name, _ABSENT)
    if isinstance(found, types.MemberDescriptorType):
        return found.__get__(owner, type(owner))
    return found


def _with_holder(waiting: _Waiting, look: _Look) -> DumpedWait:
    if waiting.what in _FILE_LOCKS or waiting.what.startswith(_DATABASE):
        return DumpedWait(waiting.what, 0, _holder_of_file(waiting.what), None)
    innermost = look.innermost
    ident, frame = 0, None
    thing = waiting.thing
    if isinstance(thing, threading.Thread):
        ident = thing.ident or 0
    elif type(thing) is _RLOCK:
        owner = _OWNER.search(repr(thing))
        ident = int(owner[1]) if owner else 0
        frame = None if ident not in innermost else _held_at(innermost[ident], thing, look)
    elif type(thing) is _LOCK:
        for each, inside in innermost.items():
            frame = _held_at(inside, thing, look)
            if frame is not None:
                ident = each
                break
    elif thing is not None:
        ident = next((each for each, at in innermost.items() if _runs(at, thing)), 0)
    thread = next((each for each in threading.enumerate() if each.ident == ident and ident), None)
    native_id = 0 if thread is None else thread.native_id or 0
    return DumpedWait(waiting.what, native_id, "" if thread is None else thread.name, frame)


_LOCK: Final = type(threading.Lock())
_RLOCK: Final = type(threading.RLock())


def _holder_of_file(what: str) -> str:
    """Which process has the lock of a file, by Linux's own list; empty: it is not known.

    SQLite asks for its locks again and again, and waits for none: all that is seen is whether this
    process has one.
    """
    with contextlib.suppress(OSError, ValueError):
        rows = [row.split() for row in _KERNEL_LOCKS.read_text("ascii").splitlines()]
        own = str(os.getpid())
        if what.startswith(_DATABASE):
            wanted = ["POSIX", "ADVISORY", "WRITE", own]
            is_own = any(row[1:5] == wanted and int(row[6]) >= _PENDING_BYTE for row in rows)
            return OWN_PROCESS if is_own else ""
        waited = {row[0] for row in rows if row[1] == "->" and row[5] == own}
        for row in rows:
            if row[0] in waited and row[1] != "->":
                return OWN_PROCESS if row[4] == own else f"process {row[4]}"
    return ""


def _held_at(innermost: FrameType, lock: Any, look: _Look) -> Frame | None:
    """The ``with`` by which the thread of a frame holds a lock; None: it is in none."""
    for frame in _outwards(innermost):
        if _is_hidden(frame, look.files):
            continue
        for node in _withs(frame, look):
            with locals_of(frame) as values:
                found = [_value(item.context_expr, values, frame.f_globals) for item in node.items]
            if any(each is lock for each in found):
                code = frame.f_code
                return look.files.frame(code.co_filename, node.lineno, code.co_name)
    return None


def _withs(frame: FrameType, look: _Look) -> list[ast.With]:
    """The ``with`` statements in whose bodies a frame is, innermost first."""
    code, line = frame.f_code, frame.f_lineno or 0
    around = [
        node
        for node in look.withs(code.co_filename)
        if node.lineno < node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0)
        and _first_line(code) <= node.lineno
    ]
    return sorted(around, key=lambda node: -node.lineno)


def _first_line(code: CodeType) -> int:
    return 0 if code.co_name == "<module>" else code.co_firstlineno


def _runs(innermost: FrameType, future: Any) -> bool:
    """Whether the thread of a frame runs what a future of an executor represents."""
    for frame in _outwards(innermost):
        if frame.f_code.co_qualname == "_WorkItem.run":
            with locals_of(frame) as values:
                return _field(values.get("self"), "future") is future
    return False
