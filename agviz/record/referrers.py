"""What Python calls an object: the variable, attribute, container or function that refers to it."""

from __future__ import annotations

import gc
import itertools
import sys
from collections import deque
from functools import lru_cache
from types import CellType, FrameType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agviz.record.frame_locals import locals_of
from agviz.record.kinds import is_a
from agviz.traces.live_graphs import CLOSURE, CONTAINER, CYCLE, CYCLED, EXCEPTIONS, TENSOR
from agviz_engine import alive

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.record.files import Files
    from agviz.traces.rows import Frame

_DEPTH: Final = 3
"""Containers within each other through which a name is looked for."""
_MOST_AT_ONCE: Final = 64
"""Objects whose referrers are looked for together: each costs 3 % of a walk through everything."""
_LEAST_STORED: Final = 3
"""Objects that are in a list together, of which the list is reported and not each of them."""
_MOST_EXCEPTIONS: Final = 256
_TRACEBACK: Final = BaseException.__dict__["__traceback__"].__get__
"""Asks no class of the program."""
_LRU_CACHE: Final = type(lru_cache(int))
_CONTAINERS: Final = (list, tuple, set, frozenset, deque, dict)


class Named(NamedTuple):
    """Where Python refers to an object."""

    kind: str
    name: str
    what: str
    """Type of the container, or nothing."""
    frame: Frame | None
    """Definition of the function whose closure it is in."""
    holds: object = None
    """What has the name: the object, or the container."""


class Referrers:
    """Finds names of objects; kept for one search, as it holds what it found.

    Args:
        files: knows the sources of functions.
        things: objects whose names will be asked.
        own: lists and dictionaries of the caller that refer to them.
    """

    def __init__(self, files: Files, things: Sequence[object], own: Sequence[object]) -> None:
        self._files = files
        self._frames = list(_running())
        self._owners: dict[int, list[Any]] = {}
        """What refers to an object, by its identity."""
        self._waiting = [*things]
        """Objects whose referrers may be asked next."""
        self._kept = _kept_by_exceptions()
        self._own = {id(things), *map(id, own), id(self._kept)}
        self._own |= {id(self._frames), id(self._owners), id(self._waiting)}

    def named(self, thing: object) -> Named | None:
        """How Python refers to an object; None: nothing that has a name does."""
        if (name := _variable(self._frames, thing)) is not None:
            return Named(TENSOR, name, "", None)
        for error, frame in self._kept:
            with locals_of(frame) as values:
                is_inside = _key_of(values, thing) is not None
            found = self._referred(error, _DEPTH) if is_inside else None
            if found is not None:
                what = f"{found.what} of {EXCEPTIONS}" if found.what else "exception"
                return found._replace(kind=CONTAINER, what=what)
        return self._referred(thing, _DEPTH)

    def are_only_in(self, things: list[Any], owner: object) -> bool:
        """Whether nothing else refers to some objects, but for variables."""
        self._own.add(id(things))
        self._waiting += things
        # No generator, which would be something that refers to them.
        return all([other is owner for thing in things for other in self._of(thing)])  # noqa: C419

    def _of(self, thing: object) -> list[Any]:
        if id(thing) not in self._owners:
            self._look(thing)
        return self._owners[id(thing)]

    def _look(self, thing: object) -> None:
        """Find the referrers of an object, and of others that may be asked next."""
        asked = [thing]
        while self._waiting and len(asked) < _MOST_AT_ONCE:
            each = self._waiting.pop()
            if id(each) not in self._owners:
                asked.append(each)
        own = self._own | {id(asked)} | set(map(id, self._owners.values()))
        found: dict[int, dict[int, Any]] = {id(each): {} for each in asked}
        for owner in alive.referrers(asked):
            if id(owner) not in own and not is_a(owner, FrameType):
                _note(owner, found, _DEPTH - 1)
        for identity, owners in found.items():
            self._owners[identity] = [*owners.values()]
            self._waiting += filter(_may_be_asked, owners.values())

    def _referred(self, thing: object, depth: int) -> Named | None:
        what = "" if depth == _DEPTH else type(thing).__name__
        containers: list[object] = []
        named: Named | None = None
        for other in self._of(thing):
            if _is_ours(type(other)):
                continue
            found = self._by_name(other, thing, what)
            if found is not None and not (depth and self._is_stored(other)):
                return found
            if is_a(other, *_CONTAINERS) or _is_of_library(other) or found is not None:
                containers.append(other)
                named = found or named
        for container in containers if depth else ():
            if (name := _variable(self._frames, container)) is not None:
                return Named(CONTAINER, name, type(container).__name__, None, container)
            self._own.add(id(containers))
            found = self._referred(container, depth - 1)
            self._own.remove(id(containers))
            if found is not None:
                return found
        return named

    def _by_name(self, owner: object, thing: object, what: str) -> Named | None:
        """How the owner of a reference calls what it refers to; None: it has no name for it."""
        if is_a(owner, CellType):
            function = self._function_of(owner)
            if function is None:
                return None
            return Named(CLOSURE, function.__name__, "", self._definition(function))
        if is_a(owner, _LRU_CACHE):
            cached = owner.__wrapped__
            at = self._definition(cached) if is_a(cached, FunctionType) else None
            return Named(CONTAINER, getattr(cached, "__qualname__", ""), "lru_cache of", at)
        if type(owner) is itertools.cycle:
            return Named(CONTAINER, CYCLED, CYCLED, None, owner)
        node = self._object_of(owner) if type(owner) is dict else owner
        if _is_cycle(node, thing):
            name = _key_of(own_dict(node) or {}, thing)
            owner = node
            of = type(owner).__name__.removesuffix("Backward")
            return None if name is None else Named(CYCLE, of, f"ctx.{name}", None, thing)
        name = self._scope_of(owner, thing) if type(owner) is dict else _attribute_of(owner, thing)
        kind = CONTAINER if what else TENSOR
        return None if name is None else Named(kind, name, what, None, thing)

    def _definition(self, function: FunctionType) -> Frame:
        code = function.__code__
        return self._files.frame(code.co_filename, code.co_firstlineno, code.co_name)

    def _scope_of(self, scope: dict[Any, Any], thing: object) -> str | None:
        """Name of a global, or of an attribute of an object; None: it is a plain dictionary."""
        name = _key_of(scope, thing)
        if name is None:
            return None
        if "__name__" in scope and "__builtins__" in scope:
            return name
        owner = self._object_of(scope)
        if is_a(owner, ModuleType):
            return name
        is_known = owner is not None and not _is_of_library(owner) and not _is_ours(type(owner))
        return None if not is_known else f"{type(owner).__name__}.{name}"

    def _object_of(self, scope: dict[Any, Any]) -> object:
        """The object whose attributes, or buffers, a dictionary holds; None: it is a plain one."""
        for owner in self._of(scope):
            if getattr(type(owner), "__dictoffset__", 0) and own_dict(owner) is scope:
                return owner
            if type(owner) is dict and owner.get("_buffers") is scope:
                return self._object_of(owner)
        return None

    def _is_stored(self, owner: object) -> bool:
        """Whether it is an object that is in a list or its like with several others."""
        import torch

        known = (torch.nn.Module, torch.autograd.function.BackwardCFunction)
        if type(owner) in (*_CONTAINERS, CellType, _LRU_CACHE) or is_a(owner, *known):
            return False
        return any(
            type(each) in {list, deque} and len(each) >= _LEAST_STORED for each in self._of(owner)
        )

    def _function_of(self, cell: CellType) -> FunctionType | None:
        for closure in self._of(cell):
            if type(closure) is tuple:
                for function in self._of(closure):
                    if is_a(function, FunctionType) and function.__closure__ is closure:
                        return function
        return None


def in_variables() -> set[int]:
    """Identities of what variables refer to: of functions that run, or that exceptions keep."""
    found: set[int] = set()
    for frame in (*_running(), *(frame for _, frame in _kept_by_exceptions())):
        with locals_of(frame) as values:
            found.update(map(id, values.values()))
    return found


def _kept_by_exceptions() -> list[tuple[BaseException, FrameType]]:
    """Frames of functions that have ended, whose variables a traceback keeps, by its exception."""
    running = set(map(id, _running()))
    found = []
    for error in alive.instances(BaseException)[-_MOST_EXCEPTIONS:]:
        trace = _TRACEBACK(error)
        while trace is not None:
            if id(trace.tb_frame) not in running:
                found.append((error, trace.tb_frame))
            trace = trace.tb_next
    return found


def _note(owner: Any, found: dict[int, dict[int, Any]], depth: int) -> bool:
    """Note what an object refers to of others, itself or through tuples; whether it does."""
    refers = False
    for each in gc.get_referents(owner):
        if id(each) in found:
            found[id(each)][id(owner)] = owner
            refers = True
        elif depth and type(each) is tuple and _note(each, found, depth - 1):
            found.setdefault(id(each), {})[id(owner)] = owner
            refers = True
    return refers


def _may_be_asked(owner: object) -> bool:
    """Whether a name may be found at what refers to it: all its objects refer to a class."""
    if type(owner) is dict:
        return "__builtins__" not in owner
    return not is_a(owner, type, ModuleType, FunctionType)


def _running() -> Iterator[FrameType]:
    """The frames of this thread outside of agviz, innermost first: the collector knows them not."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if not frame.f_globals.get("__name__", "").startswith(("agviz.", "agviz_engine.")):
            yield frame
        frame = frame.f_back


def _variable(frames: Sequence[FrameType], thing: object) -> str | None:
    """The variable of a running function that refers to a thing."""
    for frame in frames:
        with locals_of(frame) as values:
            name = _key_of(values, thing)
        if name is not None:
            return name
    return None


def _key_of(scope: Any, thing: object) -> str | None:
    for key, value in list(scope.items()):
        if value is thing and is_a(key, str):
            return key
    return None


def _attribute_of(owner: object, thing: object) -> str | None:
    """Name of an attribute whose value it is; None: it is none, or one of a class of a library."""
    own = None if _is_of_library(owner) else own_dict(owner)
    name = None if own is None else _key_of(own, thing)
    return None if name is None else f"{type(owner).__name__}.{name}"


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in {"agviz", "agviz_engine"}


def _is_of_library(owner: object) -> bool:
    """Whether it is an object, as a queue, whose attributes a user does not know by name."""
    kind = type(owner)
    package = kind.__module__.partition(".")[0]
    known = package == "torch" or package in sys.stdlib_module_names
    return known and kind.__module__ != "builtins" and bool(getattr(kind, "__dictoffset__", 0))


def _is_cycle(owner: object, thing: object) -> bool:
    """Whether a custom Function's node refers to what it gave, itself or in a container."""
    import torch

    if not is_a(owner, torch.autograd.function.BackwardCFunction):
        return False
    parts: list[object] = [thing]
    if is_a(thing, dict):
        parts = [*thing.values()]
    elif is_a(thing, list, tuple, set, frozenset, deque):
        parts = [*thing]
    return any(is_a(each, torch.Tensor) and id(each.grad_fn) == id(owner) for each in parts)


def own_dict(owner: object) -> dict[str, Any] | None:
    """The attributes of an object, without calling code of its class; None: it has none."""
    try:
        found = object.__getattribute__(owner, "__dict__")
    except AttributeError:
        return None
    return found if type(found) is dict else None
