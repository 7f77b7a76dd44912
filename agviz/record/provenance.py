"""Provenance: the stack of Python that created each node, and what the node saved for backward.

Note [Capturing a stack for every node]
Anomaly mode has torch call ``torch.fx.traceback.format_stack`` while it makes a node, on whichever
thread, and put the result in the node's ``metadata["traceback_"]``, where it lives as long as the
node. What is dear is the formatting, not the call. So that function gives way to one that only
captures code objects and positions, which takes a microsecond; they become file names and lines
when the node is recorded. Nothing watches the program's own operators: no dispatch or function
mode hinders compilers, functorch, subclasses or other modes.

The program does not see the mode: ``torch.is_anomaly_enabled`` and its like return what the program
set itself, and once it asks for anomaly mode it gets torch's own.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import logging
import re
import threading
import warnings
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from agviz.record import capturing
from agviz.record.capturing import MOST_FRAMES, line_of
from agviz.record.files import Files
from agviz.record.writer import Origins
from agviz.traces.dumps import CallSite
from agviz_engine.errors import comes_from_outside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from types import CodeType

    from agviz.record.capturing import Way
    from agviz.traces.rows import Frame
    from agviz_engine.node import NodeRef
    from agviz_engine.tensor_facts import Block

log = logging.getLogger("agviz")

_OBSERVING: Final = str(Path(__file__).with_name("check_forward.py"))

_MOST_CAPTURED: Final = 200_000
"""Stacks captured between two graph tasks (some 250 MB); nodes after that have none."""
_MOST_KNOWN: Final = 20_000
"""Frames, or stacks, that are remembered."""
_ENTRY: Final = re.compile(r'  File "(.*)", line (\d+), in (.*)\n')
"""A frame in a stack of anomaly mode."""
_WORDS: Final = (
    r"Error detected in .*\. Traceback of forward call that caused the error:\n \(Triggered"
    r"|Error detected in .*\. No forward pass information available\."
    r"|\n\nPrevious calculation was induced by .* the previous calculation:\n \(Triggered"
    r"|\n\nPrevious calculation was induced by .*\. No forward pass information available\."
)
"""What torch says beside the exception of a custom Function in anomaly mode, without a stack."""


class Saved(NamedTuple):
    """What a node says of one tensor that it saved, without unpacking it."""

    name: str
    """As in torch's ``_saved_<name>``; ``tensors[0]`` for those of a list."""
    shape: str
    """Like ``[2, 3]``; empty where a hook packed it, or where sizes are symbolic."""
    dtype: str
    nbytes: int | None
    """Bytes of its elements; None where they are not known."""


class _Mode:
    """Anomaly mode as the program sees it, and as it really is while anyone captures stacks."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.captures = 0
        self.enabled = False
        self.check_nan = True
        self._capture: Callable[[], Any] | None = None

    def start(self, way: Way) -> None:
        """Have the stack of every node captured; calls are counted, the first one has its way."""
        import torch
        from torch.fx import traceback

        # Imported before there are others in the place of torch's own functions, which it calls.
        from agviz_engine.torch_modes import anomaly_pause

        with self.lock:
            self.captures += 1
            if self.captures > 1:
                return
            self._way = way
            torch_c: Any = torch._C
            self._set = anomaly_pause.write  # another thread may be in a pause, and end it later
            self.enabled, self.check_nan = anomaly_pause.flags
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
            self.captures -= 1
            if self.captures:
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
            warnings.filterwarnings("default" if mode else "ignore", _WORDS, UserWarning)

    def is_enabled(self) -> bool:
        """``torch.is_anomaly_enabled`` for the program."""
        return self.enabled

    def is_check_nan_enabled(self) -> bool:
        """``torch.is_anomaly_check_nan_enabled`` for the program."""
        return self.check_nan


_mode = _Mode()


class Provenance:
    """Where nodes come from. It captures stacks between :meth:`start` and :meth:`stop`."""

    def __init__(self) -> None:
        self._is_capturing = False
        self._names: weakref.WeakKeyDictionary[type, tuple[tuple[str, str], ...]] = (
            weakref.WeakKeyDictionary()
        )
        """By type of node: attributes that give what it saved, and torch's names of that."""
        self.files = Files()
        self._frames: dict[tuple[CodeType, int], Frame] = {}
        """By code and instruction; that keeps the code alive, and its address from another's."""
        self._stacks: dict[bytes, tuple[Frame, ...]] = {}
        """By address, while that code is alive."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def is_capturing(self) -> bool:
        """Whether stacks are captured."""
        return self._is_capturing

    def start(self) -> None:
        """Capture the stack of every node that is made from now on, on all threads."""
        if not self._is_capturing:
            way = capturing.way()
            if way is None:
                log.warning("this torch captures stacks in another way: no lines are recorded")
                return
            self._is_capturing = True
            _mode.start(way)

    def stop(self) -> None:
        """Capture no longer; nodes keep what they have."""
        if self._is_capturing:
            self._is_capturing = False
            _mode.stop()

    def renew(self) -> None:
        """A graph task begins: its graph is complete, and the next one may begin."""
        if self._is_capturing:
            _mode.renew()

    def of(self, graph_task: int, refs: Sequence[NodeRef]) -> Origins:
        """Where the nodes of a graph task come from, and what they saved."""
        captured: list[Any] = []
        saved: list[int | str | None] = []
        try:
            captured = list(map(_captured, [ref.node for ref in refs]))
            for ref in refs:
                if ref.saves_tensors or ref.is_custom_function:
                    for number, each in enumerate(self.saved(ref.node)):
                        saved += ref.index, number, *each
        except Exception as error:
            if comes_from_outside(error):
                raise
            self._give_up(error)
        return Origins(graph_task, functools.partial(self._resolved, captured), saved)

    def call_site(self, graph_task: int) -> CallSite | None:
        """Where this thread calls backward or grad; None while stacks are not captured."""
        stack = self.here()
        return None if stack is None else CallSite(graph_task, stack)

    def here(self) -> Callable[[], tuple[Frame, ...]] | None:
        """What gives the stack of this thread, outermost frame first; None while none is captured.

        To ask is dear.
        """
        way = capturing.way()
        if way is None or not self._is_capturing:
            return None
        captured = way.one()
        return lambda: next(iter(self._resolved([captured])), ())

    def captured(self, node: Any) -> Any:
        """What was captured when torch made ``node``, for :meth:`resolve`; None: nothing."""
        return capturing.unwrapped(_captured(node))

    def _resolved(self, captured: list[Any]) -> list[tuple[Frame, ...]]:
        try:
            return self.resolve(captured)
        except Exception as error:
            if comes_from_outside(error):
                raise
            self._give_up(error)
            return []

    def _give_up(self, error: Exception) -> None:
        self.stop()
        log.warning("where nodes come from is no longer recorded (%r)", error)

    def resolve(self, captured: Sequence[Any]) -> list[tuple[Frame, ...]]:
        """Stacks, outermost frame first, of what :meth:`captured` gave; empty for None.

        Without the frames in which ``--check-forward`` observes a function of torch.
        """
        stacks: list[tuple[Frame, ...]] = []
        for found in map(capturing.unwrapped, captured):
            if found is None:
                stacks.append(())
            elif isinstance(found, list):  # anomaly mode's own
                raw = (each for each in _parsed(found) if each[0] != _OBSERVING)
                frames = itertools.starmap(self.files.frame, raw)
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
            stack = self._stacks[raw] = tuple(
                self._frame(position)
                for position in capturing.positions(begin, end)
                if position[0].co_filename != _OBSERVING
            )
        return stack

    def _frame(self, position: tuple[CodeType, int]) -> Frame:
        made = self._frames.get(position)
        if made is None:
            code, instruction = position
            made = self.files.frame(code.co_filename, line_of(code, instruction), code.co_name)
            self._frames[position] = made
        return made

    def saved(self, node: Any) -> list[Saved]:
        """The tensors that ``node`` saved and still has. No hook and no subclass is asked."""
        raw_saved = _saved_reader()
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
                raw = raw_saved(node, attribute)
            except RuntimeError:
                continue  # released already
            if isinstance(raw, tuple | list):
                for number, one in enumerate(raw):
                    _add_saved(found, f"{name}[{number}]", one)
            else:
                _add_saved(found, name, raw)
        return found


def _captured(node: Any) -> Any:
    """The same as it is kept: to look into it takes as long again, and can wait."""
    metadata = getattr(node, "metadata", None)  # torch did not make the GraphRoot
    return None if metadata is None else metadata.get("traceback_")


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

    from agviz_engine.tensor_facts import tensor_block

    return (torch.Tensor, torch.nn.Parameter), tensor_block


@functools.cache
def _saved_reader() -> Callable[[Any, str], Any]:
    from agviz.measure.saved_tensors import raw_saved

    return raw_saved


_facts: dict[Block, tuple[str, str, int | None]] = {}
"""Of plain tensors, by their block: equal blocks are those of tensors that are alike."""


def _facts_of(data: Any) -> tuple[str, str, int | None]:
    """Shape, dtype and bytes, as in :class:`Saved`."""
    import torch

    from agviz_engine.tensor_facts import is_plain

    if not isinstance(data, torch.Tensor):
        return "", "", None
    plain_types, tensor_block = _plain_tensors()
    with torch._C.DisableTorchFunction():
        is_alike = type(data) in plain_types and is_plain(data)
        try:
            shape = list(data.shape)
            dtype = str(data.dtype).removeprefix("torch.")
            plain = all(type(size) is int for size in shape)
            strided = plain and data.layout is torch.strided
            nbytes = data.numel() * data.element_size() if strided else None
        except (RuntimeError, NotImplementedError):  # a nested tensor has no shape
            return "", "", None
    facts = str(shape) if plain else "", dtype, nbytes
    if is_alike:
        if len(_facts) >= _MOST_KNOWN:
            _facts.clear()
        _facts[tensor_block(data)] = facts
    return facts


def _parsed(stack: Iterable[object]) -> Iterator[tuple[str, int, str]]:
    """File, line and function of the frames in a stack of anomaly mode."""
    for entry in stack:
        if match := _ENTRY.match(str(entry)):
            yield match[1], int(match[2]), match[3]
