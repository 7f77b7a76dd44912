"""States of modules that the program takes, loads and saves: what a load changes, and what not.

Note [The memory of parameters]
``state_dict()`` gives the very memory of the parameters, which later steps write to. What was taken
is known again by a weak reference to its first and its last tensor; the tensors that it gives are
made for it, so that nobody else has them.
"""

from __future__ import annotations

import functools
import itertools
import logging
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agviz.record.capturing import callers, line_of
from agviz.record.kinds import is_a
from agviz.traces.module_states import EQUAL, SAME, SAVED, UNUSED, StateFact
from agviz_engine.errors import comes_from_outside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import CodeType, FrameType

    from torch import Tensor
    from torch.nn import Module

    from agviz.record.files import Files

    Places = tuple[tuple[CodeType, int], ...]

log = logging.getLogger("agviz")

_MOST_TAKEN: Final = 256
"""States that are known again."""
_MOST_FACTS: Final = 32
_MOST_VALUES: Final = 10_000
"""Looked at in what is saved."""
_LARGEST: Final = 100_000
"""Numbers of a parameter that is compared with what is loaded into it."""
_MOST_COMPARED: Final = 8
_HARDLY: Final = 0.1
"""Share of a state, and of the parameters, that is still next to nothing."""


class _Taken(NamedTuple):
    tensor: weakref.ref[Tensor]
    steps: int
    """Of optimizers, before it was taken."""
    places: Places


class _Seen(NamedTuple):
    """What a load did not do, before its places have names."""

    kind: str
    places: Places
    taken: _Taken | None
    steps: int
    is_again: bool
    facts: tuple[int, int, str, str]


class _Depth(threading.local):
    is_inside = False


class ModuleStates:
    """Observes ``state_dict``, ``load_state_dict`` and ``torch.save``.

    Note [The memory of parameters].
    """

    def __init__(self) -> None:
        self.steps = 0
        """Of optimizers, so far."""
        self._taken: dict[int, _Taken] = {}
        """By the identity of a tensor."""
        self._steps_at: dict[tuple[CodeType, int], tuple[int, int]] = {}
        """By the place that takes a state: steps before the first and the last time."""
        self._seen: list[_Seen] = []
        self._unused: list[tuple[weakref.ref[Module], _Seen]] = []
        """Loads that used next to nothing of what they were given, where no later one did."""
        self._depth = _Depth()
        self._replaced: list[tuple[Any, str, Any, Any]] = []

    def start(self) -> None:
        """Begin to observe. Imports torch."""
        import torch

        if self._replaced:
            return
        kind: Any = torch.nn.Module
        own_take, own_load, own_save = kind.state_dict, kind.load_state_dict, torch.save
        depth = self._depth

        @functools.wraps(own_take)
        def state_dict(module: Module, *args: Any, **kwargs: Any) -> Any:
            if depth.is_inside or not self._replaced:
                return own_take(module, *args, **kwargs)
            with _Inside(depth):
                found = own_take(module, *args, **kwargs)
            self._guarded(self._note_taken, found, sys._getframe(1))
            return found

        @functools.wraps(own_load)
        def load_state_dict(module: Module, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
            if depth.is_inside or not self._replaced:
                return own_load(module, state_dict, *args, **kwargs)
            with _Inside(depth):
                self._guarded(self._note_load, module, state_dict, sys._getframe(1))
                found = own_load(module, state_dict, *args, **kwargs)
                self._guarded(self._note_loaded, module, state_dict, found, sys._getframe(1))
            return found

        @functools.wraps(own_save)
        def save(obj: Any, *args: Any, **kwargs: Any) -> Any:
            if self._replaced:
                self._guarded(self._note_saved, obj, sys._getframe(1))
            return own_save(obj, *args, **kwargs)

        replaced: list[tuple[Any, str, Any, Any]] = [
            (kind, "state_dict", own_take, state_dict),
            (kind, "load_state_dict", own_load, load_state_dict),
            (torch, "save", own_save, save),
        ]
        for owner, name, own, ours in replaced:
            ours._torchdynamo_disable = True
            setattr(owner, name, ours)
            self._replaced.append((owner, name, own, ours))

    def stop(self) -> None:
        """Put back what was there, unless somebody has replaced it since."""
        for owner, name, own, ours in self._replaced:
            if getattr(owner, name) is ours:
                setattr(owner, name, own)
        self._replaced.clear()

    def facts(self, files: Files) -> list[StateFact]:
        """What was seen, in order of time.

        Args:
            files: gives files the names that a reader knows them by.
        """
        found = []
        for each in [*self._seen, *(one for _, one in self._unused)]:
            at = _line(files, each.places)
            taken = None if each.taken is None else _line(files, each.taken.places)
            if at is not None:
                found.append(
                    StateFact(each.kind, at, taken, each.steps, each.is_again, *each.facts)
                )
        return found[:_MOST_FACTS]

    def _guarded(self, act: Callable[..., None], *args: Any) -> None:
        """What can't be looked at, as tensors of another kind, is left alone."""
        from agviz.measure.health import unseen

        try:
            with unseen():
                act(*args)
        except Exception as error:
            if comes_from_outside(error):
                raise
            log.debug("a state was not looked at (%r)", error)

    def _note_taken(self, state: Any, frame: FrameType) -> None:
        tensors = list(_tensors(state))
        places = callers(frame)
        if not tensors or not places:
            return
        if len(self._taken) >= _MOST_TAKEN:
            self._taken = {key: one for key, one in self._taken.items() if one.tensor() is not None}
        for one in (tensors[0], tensors[-1]):
            if len(self._taken) < _MOST_TAKEN:
                self._taken[id(one)] = _Taken(weakref.ref(one), self.steps, places)
        first, _ = self._steps_at.get(places[0], (self.steps, self.steps))
        if len(self._steps_at) < _MOST_TAKEN or places[0] in self._steps_at:
            self._steps_at[places[0]] = first, self.steps

    def _known(self, tensor: Tensor) -> _Taken | None:
        found = self._taken.get(id(tensor))
        return found if found is not None and found.tensor() is tensor else None

    def _is_again(self, taken: _Taken) -> bool:
        first, last = self._steps_at.get(taken.places[0], (0, 0))
        return first != last

    def _note_load(self, module: Module, state: Any, frame: FrameType) -> None:
        """Whether it loads what is there already."""
        own = _parameters(module)
        given = {name: state[name] for name in own if name in state}
        if not own or len(given) < len(own) or len(self._seen) >= _MOST_FACTS:
            return
        if all(_is_same(given[name], one) for name, one in own.items()):
            taken = next(filter(None, map(self._known, _tensors(state))), None)
            if taken is not None:
                self._note(SAME, taken, frame)
            return
        memories = {one.data_ptr() for one in own.values()}
        alive = [(one, one.tensor()) for one in list(self._taken.values())]
        older = [
            one
            for one, tensor in alive
            if tensor is not None and one.steps < self.steps and tensor.data_ptr() in memories
        ]
        if older and _are_equal([(given[name], one) for name, one in own.items()]):
            self._note(EQUAL, older[-1], frame)

    def _note_saved(self, saved: Any, frame: FrameType) -> None:
        for tensor in _tensors(saved):
            taken = self._known(tensor)
            if taken is not None and taken.steps < self.steps and len(self._seen) < _MOST_FACTS:
                self._note(SAVED, taken, frame)
                return

    def _note(self, kind: str, taken: _Taken, frame: FrameType) -> None:
        steps = self.steps - taken.steps
        facts = 0, 0, "", ""
        again = self._is_again(taken)
        self._seen.append(_Seen(kind, callers(frame), taken, steps, again, facts))

    def _note_loaded(self, module: Module, state: Any, found: Any, frame: FrameType) -> None:
        """Whether it used anything of what it was given."""
        own = _parameters(module)
        missing = set(found.missing_keys) & own.keys()
        unused = set(found.unexpected_keys)
        self._unused = [each for each in self._unused if each[0]() is not module]
        if not own or not state or len(self._unused) >= _MOST_FACTS:
            return
        if len(missing) >= (1 - _HARDLY) * len(own) and len(unused) >= (1 - _HARDLY) * len(state):
            facts = len(missing), len(own), *_prefixes(own.keys(), state)
            seen = _Seen(UNUSED, callers(frame), None, self.steps, False, facts)
            self._unused.append((weakref.ref(module), seen))


class _Inside:
    """Marks what state_dict and load_state_dict call themselves."""

    def __init__(self, depth: _Depth) -> None:
        self._depth = depth

    def __enter__(self) -> None:
        self._depth.is_inside = True

    def __exit__(self, *_: object) -> None:
        self._depth.is_inside = False


def _parameters(module: Module) -> dict[str, Tensor]:
    from torch.nn import Module

    return dict(Module.named_parameters(module, remove_duplicate=False))


def _tensors(state: Any) -> Iterator[Tensor]:
    """The tensors of a state, or of one in what is saved, in order, among the first values."""
    from torch import Tensor

    waiting = [state]
    for _ in range(_MOST_VALUES):
        if not waiting:
            return
        one = waiting.pop()
        if is_a(one, Tensor):
            yield one
        elif is_a(one, dict):
            waiting += list(itertools.islice(dict.values(one), _MOST_VALUES))[::-1]
        elif is_a(one, list, tuple):
            kind: Any = list if is_a(one, list) else tuple
            waiting += list(itertools.islice(kind.__iter__(one), _MOST_VALUES))[::-1]


def _is_same(one: Tensor, other: Tensor) -> bool:
    return bool(one.numel()) and one.numel() == other.numel() and one.data_ptr() == other.data_ptr()


def _are_equal(pairs: list[tuple[Tensor, Tensor]]) -> bool:
    """Whether small ones on the CPU are the same but for rounding, all of the first few."""
    import torch

    small = [
        (one, other)
        for one, other in pairs
        if one.device.type == other.device.type == "cpu"
        and one.shape == other.shape
        and one.dtype == other.dtype
        and 0 < one.numel() <= _LARGEST
    ][:_MOST_COMPARED]
    return bool(small) and all(torch.allclose(one, other, rtol=1e-5) for one, other in small)


def _prefixes(own: Any, state: Mapping[str, Any]) -> tuple[str, str]:
    """What names of a state begin with besides, and what they lack; else where the state is in it.

    The latter as ``["model"]``.
    """
    keys = [key for key in state if is_a(key, str)]
    half = len(own) / 2
    for key, entry in state.items():
        if is_a(entry, dict) and len(own & entry.keys()) >= half:
            return f"[{key!r}]", ""
    for name in list(own)[:_MOST_COMPARED]:
        for key in keys:
            more = key.removesuffix(name) if key.endswith(f".{name}") else ""
            if more and sum(f"{more}{one}" in state for one in own) >= half:
                return more, ""
            less = name.removesuffix(key) if name.endswith(f".{key}") else ""
            if less and sum(one.removeprefix(less) in state for one in own) >= half:
                return "", less
    return "", ""


def _line(files: Files, places: Places) -> tuple[str, int, str] | None:
    """File, line and function of the innermost place of the program; None: none is."""
    for code, instruction in places:
        frame = files.frame(code.co_filename, line_of(code, instruction), code.co_name)
        if not frame.hidden:
            return frame.file, frame.line, frame.function
    return None
