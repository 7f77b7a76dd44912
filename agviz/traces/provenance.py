"""Provenance: the stack of Python that created each node, and what the node saved for backward.

Note [Hearing of every node]
Anomaly mode has torch call ``torch.fx.traceback.format_stack`` while it makes a node, on whichever
thread, and put the result in the node's ``metadata["traceback_"]``, where it lives as long as the
node. What is dear is the formatting, not the call. So that function gives way to one that only
captures code objects and positions, which takes a microsecond; they become file names and lines
when the node is recorded. Nothing watches the program's own operators: no dispatch or function
mode stands in the way of compilers, functorch, subclasses or other modes.

The program does not see the mode: ``torch.is_anomaly_enabled`` and its like tell what the program
set itself, and once it asks for anomaly mode it gets torch's own.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import linecache
import logging
import os
import re
import sys
import sysconfig
import threading
import warnings
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agviz.traces import capturing
from agviz.traces.capturing import MOST_FRAMES
from agviz.traces.listener import Listener
from agviz.traces.rows import Frame
from agviz.traces.schema import SOURCE_LIMIT
from agviz.traces.watchdog import CallSite
from agviz.traces.writer import Origins

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import CodeType

    from agviz.traces.capturing import Way
    from agviz_engine.node import NodeRef
    from agviz_engine.torch_layout import Block

log = logging.getLogger("agviz")

_MOST_CAPTURED: Final = 200_000
"""Stacks captured between two graph tasks (some 250 MB); nodes after that have none."""
_MOST_KNOWN: Final = 20_000
"""Frames, or stacks, that are remembered."""
_MOST_BYTES: Final = 5_000_000
"""Of a file of source."""
_RUNNERS: Final = {"pytest", "_pytest", "pluggy", "pytest_timeout"}
"""Whose frames stand around each test, or where one of them ends it."""
_ENTRY: Final = re.compile(r'  File "(.*)", line (\d+), in (.*)\n')
"""A frame in a stack of anomaly mode."""
_WORDS: Final = (
    r"Error detected in .*\. Traceback of forward call that caused the error:\n \(Triggered",
    r"Error detected in .*\. No forward pass information available\.",
    r"\n\nPrevious calculation was induced by .* the previous calculation:\n \(Triggered",
    r"\n\nPrevious calculation was induced by .*\. No forward pass information available\.",
)
"""What torch says beside the exception of a custom Function in anomaly mode, without a stack."""


class Saved(NamedTuple):
    """What a node says of one tensor that it saved, without unpacking it."""

    name: str
    """As in torch's ``_saved_<name>``; ``tensors[0]`` for those that stand in a list."""
    shape: str
    """Like ``[2, 3]``; empty where a hook packed it, or where sizes are symbolic."""
    dtype: str
    nbytes: int | None
    """Bytes of its elements; None where they are not known."""


class _Mode:
    """Anomaly mode as the program sees it, and as it really is while anyone listens."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.listeners = 0
        self.enabled = False
        self.check_nan = True
        self._capture: Callable[[], Any] | None = None

    def start(self, way: Way) -> None:
        """Have the stack of every node captured; calls are counted, the first one has its way."""
        import torch
        from torch.fx import traceback

        import agviz_engine.native_run  # noqa: F401 - it has to meet torch's own functions

        with self.lock:
            self.listeners += 1
            if self.listeners > 1:
                return
            self._way = way
            torch_c: Any = torch._C
            self._set = torch_c.set_anomaly_enabled
            self.enabled = torch_c.is_anomaly_enabled()
            self.check_nan = torch_c.is_anomaly_check_nan_enabled()
            self._own = {
                name: getattr(torch_c, name)
                for name in (
                    "set_anomaly_enabled",
                    "is_anomaly_enabled",
                    "is_anomaly_check_nan_enabled",
                )
            }
            places: tuple[Any, ...] = (torch, torch_c)
            for place in places:
                place.set_anomaly_enabled = self.set
                place.is_anomaly_enabled = self.is_enabled
                place.is_anomaly_check_nan_enabled = self.is_check_nan_enabled
            self._traceback: Any = traceback
            self._format_stack = traceback.format_stack
            self.renew()
            self.set(self.enabled, self.check_nan)

    def stop(self) -> None:
        """Leave torch as it was, once all have stopped."""
        import torch

        with self.lock:
            self.listeners -= 1
            if self.listeners:
                return
            self._traceback.format_stack = self._format_stack
            self._set(self.enabled, self.check_nan)
            for place in (torch, torch._C):
                for name, function in self._own.items():
                    setattr(place, name, function)

    def renew(self) -> None:
        """Let as many stacks be captured again as are allowed between two graph tasks."""
        capture = self._way.some(_MOST_CAPTURED)
        with self.lock:
            if self._traceback.format_stack is self._capture:
                self._traceback.format_stack = capture
            self._capture = capture

    def set(self, mode: bool, check_nan: bool = True) -> None:
        """``torch.set_anomaly_enabled`` for the program."""
        with self.lock:
            self.enabled, self.check_nan = mode, check_nan
            self._traceback.format_stack = self._format_stack if mode else self._capture
            self._set(True, mode and check_nan)
            for words in _WORDS:
                warnings.filterwarnings("default" if mode else "ignore", words, UserWarning)

    def is_enabled(self) -> bool:
        """``torch.is_anomaly_enabled`` for the program."""
        return self.enabled

    def is_check_nan_enabled(self) -> bool:
        """``torch.is_anomaly_check_nan_enabled`` for the program."""
        return self.check_nan


_mode = _Mode()


class Provenance(Listener):
    """Where nodes come from. It listens between :meth:`start` and :meth:`stop`."""

    def __init__(self) -> None:
        self._is_listening = False
        self._names: weakref.WeakKeyDictionary[type, tuple[tuple[str, str], ...]] = (
            weakref.WeakKeyDictionary()
        )
        """By type of node: attributes that give what it saved, and torch's names of that."""
        self.files = Files()
        self._frames: dict[tuple[CodeType, int], Frame] = {}
        """By code and instruction; that keeps the code alive, and its address from another's."""
        self._stacks: dict[bytes, tuple[Frame, ...]] = {}
        """By what stands in memory, while that code is alive."""

    def start(self) -> None:
        """Capture the stack of every node that is made from now on, on all threads."""
        if not self._is_listening:
            way = capturing.way()
            if way is None:
                log.warning("this torch captures stacks in another way: no lines are recorded")
                return
            self._is_listening = True
            _mode.start(way)

    def stop(self) -> None:
        """Capture no longer; nodes keep what they have."""
        if self._is_listening:
            self._is_listening = False
            _mode.stop()

    def renew(self) -> None:
        """A graph task begins: its graph is complete, and the next one may begin."""
        if self._is_listening:
            _mode.renew()

    def of(self, graph_task: int, refs: Sequence[NodeRef]) -> Origins:
        """Where the nodes of a graph task come from, and what they saved."""
        captured: list[Any] = []
        saved: list[int | str | None] = []
        try:
            for ref in refs:
                if not ref.base:  # the GraphRoot, which torch does not know
                    captured.append(None)
                    continue
                captured.append(self.captured(ref.node))
                if ref.saves_tensors or ref.is_custom_function:
                    for number, each in enumerate(self.saved(ref.node)):
                        saved += ref.index, number, *each
        except Exception as error:  # noqa: BLE001 - whatever happens here, the recording goes on
            self._give_up(error)
        return Origins(graph_task, functools.partial(self._resolved, captured), saved)

    def call_site(self, graph_task: int) -> CallSite | None:
        """Where this thread calls backward or grad; None while stacks are not captured."""
        way = capturing.way()
        if way is None or not self._is_listening:
            return None
        captured = way.one()
        return CallSite(graph_task, lambda: next(iter(self._resolved([captured])), ()))

    def captured(self, node: Any) -> Any:
        """What was captured when torch made ``node``, for :meth:`resolve`; None: nothing."""
        return capturing.unwrapped(node.metadata.get("traceback_"))

    def _resolved(self, captured: list[Any]) -> list[tuple[Frame, ...]]:
        try:
            return self.resolve(captured)
        except Exception as error:  # noqa: BLE001 - whatever happens here, the recording goes on
            self._give_up(error)
            return []

    def _give_up(self, error: Exception) -> None:
        self.stop()
        log.warning("where nodes come from is no longer recorded (%r)", error)

    def resolve(self, captured: Sequence[Any]) -> list[tuple[Frame, ...]]:
        """Stacks, outermost frame first, of what :meth:`captured` gave; empty for None."""
        stacks: list[tuple[Frame, ...]] = []
        for found in captured:
            if found is None:
                stacks.append(())
            elif isinstance(found, list):  # anomaly mode's own
                frames = itertools.starmap(self.files.frame, _parsed(found))
                stacks.append(tuple(frames)[-MOST_FRAMES:])
            else:
                stacks.append(self._stack(found))
        return stacks

    def _stack(self, captured: object) -> tuple[Frame, ...]:
        begin, end = capturing.memory(captured)
        raw = ctypes.string_at(begin, end - begin)
        stack = self._stacks.get(raw)
        if stack is None:
            if len(self._frames) > _MOST_KNOWN or len(self._stacks) > _MOST_KNOWN:
                self._frames.clear()
                self._stacks.clear()
            stack = self._stacks[raw] = tuple(map(self._frame, capturing.positions(begin, end)))
        return stack

    def _frame(self, position: tuple[CodeType, int]) -> Frame:
        made = self._frames.get(position)
        if made is None:
            code, instruction = position
            made = self.files.frame(code.co_filename, _line(code, instruction), code.co_name)
            self._frames[position] = made
        return made

    def saved(self, node: Any) -> list[Saved]:
        """The tensors that ``node`` saved and still has. No hook and no subclass is asked."""
        kind = type(node)
        names = self._names.get(kind)
        if names is None:
            names = self._names[kind] = tuple(
                (name, name.removeprefix("_raw_saved_"))
                for name in dir(kind)
                if name.startswith("_raw_saved_")
            )
        found: list[Saved] = []
        for attribute, name in names:
            try:
                raw = getattr(node, attribute)
            except RuntimeError:
                continue  # released already
            if isinstance(raw, tuple | list):
                for number, one in enumerate(raw):
                    _add_saved(found, f"{name}[{number}]", one)
            else:
                _add_saved(found, name, raw)
        return found


def _add_saved(found: list[Saved], name: str, raw: Any) -> None:
    try:
        data = raw.data
    except RuntimeError:
        return
    if data is None:
        return  # an undefined tensor, or one that was released
    plain_types, tensor_block = _plain_tensors()
    facts = _facts.get(tensor_block(data)) if type(data) in plain_types else None
    found.append(Saved(name, *(facts or _facts_of(data))))


@functools.cache
def _plain_tensors() -> tuple[tuple[type, ...], Callable[[Any], Block]]:
    """Types of plain tensors, and what gives their block."""
    import torch

    from agviz_engine.torch_layout import tensor_block

    return (torch.Tensor, torch.nn.Parameter), tensor_block


_facts: dict[Block, tuple[str, str, int | None]] = {}
"""Of plain tensors, by their block: equal blocks are those of tensors that are alike."""


def _facts_of(data: Any) -> tuple[str, str, int | None]:
    """Shape, dtype and bytes, as in :class:`Saved`."""
    import torch

    from agviz_engine.torch_layout import DIMENSIONS, PLAIN_KEYS

    if not isinstance(data, torch.Tensor):
        return "", "", None
    with torch._C.DisableTorchFunctionSubclass():
        try:
            shape = list(data.shape)
            dtype = str(data.dtype).removeprefix("torch.")
            plain = all(type(size) is int for size in shape)
            strided = plain and data.layout is torch.strided
            nbytes = data.numel() * data.element_size() if strided else None
        except (RuntimeError, NotImplementedError):  # a nested tensor has no shape
            return "", "", None
    facts = str(shape) if plain else "", dtype, nbytes
    plain_types, tensor_block = _plain_tensors()
    keys = torch._C._dispatch_keys(data).raw_repr()
    if type(data) in plain_types and keys == PLAIN_KEYS and len(shape) <= DIMENSIONS:
        if len(_facts) >= _MOST_KNOWN:
            _facts.clear()
        _facts[tensor_block(data)] = facts
    return facts


def _parsed(stack: Iterable[object]) -> Iterator[tuple[str, int, str]]:
    """File, line and function of the frames in a stack of anomaly mode."""
    for entry in stack:
        if match := _ENTRY.match(str(entry)):
            yield match[1], int(match[2]), match[3]


def _line(code: CodeType, instruction: int) -> int:
    for begin, end, line in code.co_lines():
        if begin <= instruction < end:
            return line or code.co_firstlineno
    return code.co_firstlineno


class Files:
    """Files by the names that a reader knows them by: nothing in a trace names the machine."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, bool]] = {}
        self._named: dict[str, str] = {}
        """Files as torch or Python names them, by the names that readers know."""
        self._own = Path(__file__).parents[1]
        self._launcher = os.path.join(sysconfig.get_path("scripts"), "agviz")  # noqa: PTH118 - text
        self._here = os.getcwd()  # noqa: PTH109 - compared as text

    def frame(self, file: str, line: int, function: str) -> Frame:
        """A frame of a file, by the name that torch or Python gives it."""
        known = self._known.get(file)
        if known is None:
            if len(self._known) > MOST_FRAMES * 100:
                self._known.clear()
                self._named.clear()
            known = self._known[file] = self._shown(file), self._is_hidden(file)
            self._named[known[0]] = file
        return Frame(known[0], line, function, known[1])

    def source(self, frame: Frame) -> str:
        """What stands in the line of a frame that this made, without indentation; empty: unknown.

        Of what Python has not read itself, as cells of a notebook, only regular files are read.
        """
        file = self._named.get(frame.file, "")
        try:
            if file not in linecache.cache:
                path = Path(file)
                if not path.is_file() or path.stat().st_size > _MOST_BYTES:
                    return ""
            return linecache.getline(file, frame.line).strip()[:SOURCE_LIMIT]
        except Exception:  # noqa: BLE001 - whatever happens here, the recording goes on
            return ""

    def _shown(self, file: str) -> str:
        roots = [self._here, *map(os.path.abspath, sys.path)]
        inside = [root for root in roots if _is_inside(file, root) and root != os.sep]
        installed = [root for root in inside if root.endswith(("site-packages", "dist-packages"))]
        if installed:
            best = max(installed, key=len)
        else:
            best = self._here if self._here in inside else max(inside, key=len, default="")
        return file[len(best) :].lstrip(os.sep) if best else file

    def _is_hidden(self, file: str) -> bool:
        import torch

        import agviz_engine

        if file.startswith(("<frozen ", "<eval_with_key>")):
            return True
        if file.removesuffix(f"{os.sep}__main__.py").removesuffix(".exe") == self._launcher:
            return True
        if self._shown(file).partition(os.sep)[0].removesuffix(".py") in _RUNNERS:
            return True
        own = [Path(torch.__file__).parent, Path(agviz_engine.__file__).parent, self._own]
        if any(_is_inside(file, str(root)) for root in own):
            return not _is_inside(file, str(self._own / "demo"))
        library = sysconfig.get_path("stdlib")
        others = sysconfig.get_path("purelib"), sysconfig.get_path("platlib")
        packages = ("site-packages", "dist-packages")
        return _is_inside(file, library) and not (
            any(_is_inside(file, other) for other in others)
            or any(f"{os.sep}{name}{os.sep}" in file for name in packages)
        )


def _is_inside(file: str, folder: str) -> bool:
    return file.startswith(folder.rstrip(os.sep) + os.sep)
