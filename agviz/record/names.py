"""Names: what the user calls parameters, and which module made a node.

torch's global module hooks show which module's ``forward`` is running. An autograd node takes the
next sequence number of its thread, so the numbers drawn between entering and leaving a module are
its nodes'. Each thread keeps a list of marks, "from this number on: this module"; that is all a
module call costs. Parameters and modules get their names from the outermost module of a call, and
are known by identity, weakly: a name keeps no model alive.
"""

from __future__ import annotations

import functools
import logging
import math
import threading
import time
import warnings
import weakref
from bisect import bisect_right
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from agviz.record.kinds import is_a
from agviz.record.owners import owner_of
from agviz.record.parameter_norms import ParameterNorms
from agviz.record.swapping import when_swapped
from agviz_engine.errors import comes_from_outside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import torch
    from torch import Tensor
    from torch.nn import Module
    from torch.utils.hooks import RemovableHandle

    from agviz_engine.thread_state import EngineThread

log = logging.getLogger("agviz")

_MOST_MARKS: Final = 200_000
"""Marks of one thread; the older half goes when there are more (some 100,000 module calls)."""
_MOST_CALLS: Final = 20_000
"""Calls of modules and returns of one thread in one forward; the older half goes when there are
more."""
_COMPILED: Final = "_orig_mod"
"""Where ``torch.compile`` keeps the module it wraps; no one calls a parameter by that."""
_COMPILE_WARNING: Final = r"Using `torch\.compile\(module\)` when there are global hooks"
"""It says that the wrapper calls global hooks once more: true, and harmless with ours."""
_MOST_PARAMETERS: Final = 50_000
"""Reported of a graph task."""
_MOST_GIVEN: Final = 32
"""Tensors that outermost modules were given last."""
_MOST_THREADS: Final = 64
"""Threads remembered; DataParallel makes new ones at every call."""


class KnownParameters(NamedTuple):
    """The parameters whose names are known at one moment."""

    facts: tuple[tuple[str, str, str, bool, float | None], ...]
    """Name, shape like ``[2, 3]`` (empty where not known), dtype, whether it requires a gradient,
    its norm when that was first asked for (None: not measured, or not finite).
    The very same object as long as nothing has changed."""
    had_grad: str
    """1 for each whose ``.grad`` is there, 0 for each other; one for all where all are alike."""


class _Root:
    """A module that was called from outside any other module."""

    __slots__ = ("has_parameters", "has_stand_ins", "label", "module", "thread", "unknown")

    def __init__(self, module: weakref.ref[Module], label: str, *, has_parameters: bool) -> None:
        self.module = module
        self.label = label
        self.has_parameters = has_parameters
        self.has_stand_ins = False
        """Whether other tensors were in the place of its parameters when it was walked."""
        self.unknown = 0
        """Modules met in its calls that it does not contain."""
        self.thread = threading.get_ident()
        """Identity of the thread that called it, or a part of it, last, or that found it."""


class _Place(NamedTuple):
    """A module, or a parameter, in a root."""

    root: _Root
    path: str

    def full(self, *, has_roots: bool) -> str:
        """Its name, which starts with that of its root where there are several."""
        if not self.path:
            return self.root.label
        return f"{self.root.label}.{self.path}" if has_roots else self.path


class _Marks:
    """From which sequence number on nodes belong to which module (None: to none).

    Two lists and no pair for each mark: a program makes thousands in each pass, and the garbage
    collector would visit every pair again and again.
    """

    __slots__ = ("columns",)

    def __init__(self, numbers: list[int], places: list[_Place | None]) -> None:
        self.columns = numbers, places
        """Numbers, ascending, and the module from each on. Where another thread adds a mark, there
        may be one module more."""

    def add(self, number: int, place: _Place | None) -> None:
        """Nodes belong to ``place`` from ``number`` on."""
        numbers, places = self.columns
        if numbers and numbers[-1] == number:
            places[-1] = place
            return
        places.append(place)
        numbers.append(number)
        if len(numbers) > _MOST_MARKS:
            older = _MOST_MARKS // 2
            self.columns = numbers[older:], places[older:]

    def between(self, first: int, last: int) -> _Marks:
        """Those that say something of the numbers from ``first`` to ``last``."""
        numbers, places = self.columns
        begin = max(0, bisect_right(numbers, first) - 1)
        end = bisect_right(numbers, last)
        return _Marks(numbers[begin:end], places[begin:end])

    def find(self, number: int) -> tuple[float, float, _Place | None]:
        """What they say of a number, and from which to which one they say the same."""
        numbers, places = self.columns
        place = bisect_right(numbers, number)
        first, found = (numbers[place - 1], places[place - 1]) if place else (-math.inf, None)
        return first, numbers[place] if place < len(numbers) else math.inf, found


class ModuleCalls(NamedTuple):
    """When modules were called in a forward and returned, in order, as lists of one length."""

    times_ns: list[int]
    """``time.monotonic_ns()``."""
    places: list[_Place | None]
    """What was called; None: the innermost call returned."""
    has_roots: bool
    """Whether there are several outermost modules, so that names start with theirs."""

    def paths(self) -> list[str | None]:
        """Path of the module that was called; None: the innermost call returned."""
        return [
            None if place is None else place.full(has_roots=self.has_roots) for place in self.places
        ]


class _Stretch(NamedTuple):
    """Sequence numbers, without ``end``, for which the answer is the same."""

    first: float
    end: float
    module: str | None


class _Marked(NamedTuple):
    """What the marks said of some sequence numbers at one moment."""

    own: _Marks
    """Marks of the thread that asked."""
    all: list[_Marks]
    """Marks of each thread."""
    has_roots: bool
    """Whether there are several outermost modules, so that names start with theirs."""

    def modules(self, numbers: Sequence[int]) -> list[str]:
        """Path of the module of each; only one where it is the same for all."""
        around = self.stretch(min(numbers))
        if max(numbers) < around.end:
            return [around.module or ""]
        found = []
        for number in numbers:
            if not around.first <= number < around.end:
                around = self.stretch(number)
            found.append(around.module or "")
        return found

    def stretch(self, number: int) -> _Stretch:
        """What they say of a number, and of those around it."""
        first, end, own = self.own.find(number)
        if own is not None:
            return _Stretch(first, end, own.full(has_roots=self.has_roots))
        others = set()
        for marks in self.all:
            begins, ends, place = marks.find(number)
            first, end = max(first, begins), min(end, ends)
            if place is not None:
                others.add(place.full(has_roots=self.has_roots))
        return _Stretch(first, end, others.pop() if len(others) == 1 else None)


class _Thread:
    """What one thread is in, and was in."""

    __slots__ = ("calls", "has_given", "is_timed", "marks", "stack")

    def __init__(self) -> None:
        self.stack: list[tuple[Module, _Place]] = []
        self.marks = _Marks([], [])
        self.has_given = True
        """Whether it is known what the outermost call under way was given."""
        self.is_timed = False
        """Whether the outermost call under way is part of a forward: no node or hook made it."""
        self.calls: list[Any] = []
        """Times and places of :class:`ModuleCalls` in turn, since the last pass that this thread
        began: a handler of a signal that calls backward finds none without the other."""

    def mark(self, number: int, called: _Place | None, place: _Place | None) -> None:
        """A module is called (None: has returned); nodes from ``number`` on belong to ``place``."""
        if self.is_timed:
            calls = self.calls
            calls.extend((time.monotonic_ns(), called))
            if len(calls) > 2 * _MOST_CALLS:
                del calls[:_MOST_CALLS]
        self.marks.add(number, place)


class _Local(threading.local):
    """The calling thread's own.

    An attribute of ``threading.local`` costs four times as much as one of an object with slots, and
    a hook needs six: it is looked up once.
    """

    def __init__(self, known: deque[_Marks]) -> None:
        self.thread = _Thread()
        known.append(self.thread.marks)


class Names:
    """Parameter names and module paths. It observes modules between :meth:`start` and :meth:`stop`.

    A path is ``encoder.layers.3``; nodes that the outermost module makes itself go by its class
    name. Where several outermost modules with parameters are alive, paths and parameter names
    start with the class name of theirs, and a number from the second of its class on.
    """

    def __init__(self) -> None:
        self._threads: deque[_Marks] = deque(maxlen=_MOST_THREADS)
        self._local = _Local(self._threads)
        self._modules: dict[int, tuple[weakref.ref[Module], _Place]] = {}
        self._parameters: dict[int, tuple[weakref.ref[Tensor], _Place]] = {}
        self._roots: list[_Root] = []
        self._labels: Counter[str] = Counter()
        self._given: deque[tuple[weakref.ref[Tensor], bool]] = deque(maxlen=_MOST_GIVEN)
        self._tensor: type[Tensor]
        self._parameter: type[Tensor]
        self._lock = threading.RLock()
        self._handles: list[RemovableHandle] = []
        self._forget_swaps: Callable[[], None] = _nothing
        self._next_number: Callable[[], int]
        self._is_compiling: Callable[[], bool]
        self._engine_thread: Callable[[], EngineThread]
        self._unknown_parameters = 0
        self._unowned = 0
        """Parameters in no module that was called."""
        self._norms = ParameterNorms()
        self._reported: tuple[tuple[str, str, str, bool, float | None], ...] | None = None
        """The facts of parameters that were reported last."""
        self._made_of: tuple[Any, ...] = ()
        """What of parameters and roots they were made of."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Observe module calls, of all modules in the process."""
        import torch

        from agviz_engine.thread_state import current

        self._engine_thread = current
        self._tensor, self._parameter = torch.Tensor, torch.nn.Parameter
        self._next_number = torch._C._autograd._get_sequence_nr
        self._is_compiling = torch.compiler.is_compiling
        if not self._handles:
            warnings.filterwarnings("ignore", _COMPILE_WARNING, UserWarning)
            hooks = torch.nn.modules.module
            self._handles = [
                hooks.register_module_forward_pre_hook(self._entered),
                hooks.register_module_forward_hook(self._left, always_call=True),
            ]
            self._forget_swaps = when_swapped(self._let_go)

    def stop(self) -> None:
        """Observe no longer; what is known stays known."""
        while self._handles:
            self._handles.pop().remove()
        self._forget_swaps()
        self._forget_swaps = _nothing

    def forked(self) -> None:
        """Know in a child only what it calls itself: its parent's model may be none of its."""
        self._lock = threading.RLock()
        self._modules, self._parameters, self._roots = {}, {}, []
        self._labels.clear()
        self._reported = None

    def roots(self) -> list[tuple[str, Module]]:
        """The outermost modules that are alive, each with what its parameters' names begin with."""
        with self._lock:
            several = self._has_several_roots()
            alive = [(root.label if several else "", root.module()) for root in list(self._roots)]
        return [(label, module) for label, module in alive if module is not None]

    def given(self) -> list[tuple[Tensor, bool]]:
        """Tensors that modules were given from outside, as far as they are alive, the last first.

        With each, whether that module has parameters. Those are left out that were computed with a
        gradient.
        """
        alive = [(ref(), has_parameters) for ref, has_parameters in list(self._given)]
        found = [(tensor, has) for tensor, has in alive if tensor is not None and tensor.is_leaf]
        return found[::-1]

    def learn(self, module: Module) -> None:
        """Know the parameters and modules of an outermost module before it is called."""
        with self._lock:
            if self._known(self._modules, module) is None:
                self._add_root(module)

    def parameter(self, variable: Tensor) -> str | None:
        """Name of a parameter, the first where it has several; None where it is not known."""
        place = self._known(self._parameters, variable)
        if place is None:
            import torch

            if isinstance(variable, torch.nn.Parameter):
                self._unknown_parameters += 1
                if _is_power_of_two(self._unknown_parameters):  # a walk is dear
                    for root in list(self._roots):
                        self._walk(root)
                    place = self._known(self._parameters, variable)
        return None if place is None else self._full(place)

    def trained(self, variable: Tensor) -> str | None:
        """Name of a parameter that backward leads to, or that an optimizer holds.

        As :meth:`parameter`; that of a module whose methods are called, and not the module itself,
        is looked for among what the callers have in their variables.
        """
        name = self.parameter(variable)
        if name is None and is_a(variable, self._parameter):
            self._unowned += 1
            owner = owner_of(variable) if _is_power_of_two(self._unowned) else None
            # What a module that is known makes anew in each forward stays without a name.
            if owner is not None and self._known(self._modules, owner) is None:
                self.learn(owner)
                place = self._known(self._parameters, variable)
                name = None if place is None else self._full(place)
        return name

    def parameters(self, *, with_norms: bool = False) -> KnownParameters | None:
        """All parameters that are known and alive, as they are now; None: there are none.

        Args:
            with_norms: measure those that were never asked for before.
        """
        import torch

        with self._lock, torch._C.DisableTorchFunction():
            for root in [each for each in self._roots if each.has_stand_ins]:
                self._walk(root)
            known = [(ref(), place) for ref, place in list(self._parameters.values())]
            alive = [(parameter, place) for parameter, place in known if parameter is not None]
            del alive[_MOST_PARAMETERS:]
            if not alive:
                return None
            places = [place for _, place in alive]
            facts = [_facts(parameter) for parameter, _ in alive]
            # To read a .grad that another thread writes at this moment may end the process.
            here = threading.get_ident()
            had_grad = [
                "01"[place.root.thread == here and parameter.grad is not None]
                for parameter, place in alive
            ]
            made_of = places, facts, self._has_several_roots()
            if self._reported is None or self._made_of != made_of:
                self._made_of = made_of
                norms = self._norms.of([parameter for parameter, _ in alive], measure=with_norms)
                self._reported = tuple(
                    (
                        self._full(place),
                        "" if shape is None else str(list(shape)),
                        str(dtype).removeprefix("torch."),
                        requires_grad,
                        norm,
                    )
                    for place, (shape, dtype, requires_grad), norm in zip(
                        places, facts, norms, strict=True
                    )
                )
            alike = len(set(had_grad)) == 1
            return KnownParameters(self._reported, had_grad[0] if alike else "".join(had_grad))

    def owner(self, tensor: Tensor) -> str | None:
        """Name of the parameter that a tensor is, or whose elements it has; None: of none."""
        import torch

        name = self.parameter(tensor)
        if name is not None or tensor.layout is not torch.strided or not tensor.numel():
            return name
        with self._lock:
            known = [(ref(), place) for ref, place in list(self._parameters.values())]
        for parameter, place in known:
            if (
                parameter is not None
                and parameter.layout is torch.strided
                and parameter.numel() == tensor.numel()
                and parameter.data_ptr() == tensor.data_ptr()
            ):
                return self._full(place)
        return None

    def current(self) -> str | None:
        """Path of the innermost module whose forward runs on this thread; None: none does."""
        stack = self._local.thread.stack
        return self._full(stack[-1][1]) if stack else None

    def take_calls(self) -> ModuleCalls:
        """The calls of modules by this thread, outside of backward, since this was asked last."""
        thread = self._local.thread
        calls, thread.calls = thread.calls, []
        return ModuleCalls(calls[::2], calls[1::2], self._has_several_roots())

    def find_module(self, path: str) -> Module | None:
        """The module that is known by a path, as :meth:`module` gives it; None: there is none.

        The empty path is that of the only outermost module.
        """
        with self._lock:
            known = [(ref(), place) for ref, place in list(self._modules.values())]
        for module, place in known:
            is_outermost = not path and not place.path
            if module is not None and (is_outermost or self._full(place) == path):
                return module
        return None

    def find_parameter(self, name: str) -> Tensor | None:
        """The parameter that goes by a name, as :meth:`parameter` gives it; None: there is none."""
        with self._lock:
            known = list(self._parameters.values())
            has_roots = self._has_several_roots()
        for ref, place in known:
            if name.endswith(place.path) and place.full(has_roots=has_roots) == name:
                parameter = ref()
                if parameter is not None:
                    return parameter
        return None

    def module(self, sequence_nr: int) -> str | None:
        """Path of the innermost module whose forward made the node with this sequence number.

        Threads number their nodes independently. The calling thread's own numbers win; others
        answer only where they agree, and None is the answer where they don't.
        """
        return self._marked(sequence_nr, sequence_nr).stretch(sequence_nr).module

    def modules(self, sequence_nrs: Sequence[int]) -> Callable[[], list[str]]:
        """As :meth:`module` for each, empty for None; only one where it is the same for all.

        What is known now is worked out when what is returned is called, on any thread.
        """
        # AccumulateGrad's is -1: from there on would be all that was ever marked.
        drawn = [number for number in sequence_nrs if number >= 0]
        marked = self._marked(min(drawn, default=-1), max(drawn, default=-1))
        return functools.partial(marked.modules, sequence_nrs)

    def _marked(self, first: int, last: int) -> _Marked:
        own, *others = (
            marks.between(first, last) for marks in (self._local.thread.marks, *list(self._threads))
        )
        return _Marked(own, others, self._has_several_roots())

    def _entered(self, module: Module, args: Any) -> None:
        if self._is_compiling():
            return
        try:
            thread = self._local.thread
            stack = thread.stack
            entry = self._modules.get(id(module))
            if entry is not None and entry[0]() is module:
                place = entry[1]
            else:
                place = self._place(module, stack[-1][1] if stack else None)
            if not stack:
                thread.is_timed = self._engine_thread().doing is None
                thread.has_given = False
                place.root.thread = threading.get_ident()
            if not thread.has_given:
                self._keep_given(thread, place, args)
            stack.append((module, place))
            thread.mark(self._next_number(), place, place)
        except Exception as error:
            if comes_from_outside(error):
                raise
            self._give_up(error)

    def _left(self, module: Module, args: Any, output: Any) -> None:  # noqa: ARG002
        if self._is_compiling():
            return
        try:
            thread = self._local.thread
            stack = thread.stack
            is_innermost = stack and stack[-1][0] is module
            if not is_innermost and not any(entered is module for entered, _ in stack):
                return  # it was entered before we observed
            left: Module | None = None
            while left is not module:
                left, _ = stack.pop()
                thread.mark(self._next_number(), None, stack[-1][1] if stack else None)
        except Exception as error:
            if comes_from_outside(error):
                raise
            self._give_up(error)

    def _keep_given(self, thread: _Thread, place: _Place, args: tuple[Any, ...]) -> None:
        """Know the tensors that an outermost module is given.

        torch does not show what it is given by name: then the first module inside that is given
        tensors by place represents it.
        """
        for each in args:
            if is_a(each, self._tensor):
                thread.has_given = True
                self._given.append((weakref.ref(each), place.root.has_parameters))

    def _let_go(self, parameter: Tensor) -> Callable[[], None]:
        """Have no weak reference to a parameter until it was swapped."""
        others = [each for each in list(self._given) if each[0]() is not parameter]
        self._given = deque(others, maxlen=_MOST_GIVEN)
        with self._lock:
            place = self._known(self._parameters, parameter)
            if place is None:
                return lambda: None
            del self._parameters[id(parameter)]
        return lambda: self._learn(self._parameters, parameter, place)

    def _give_up(self, error: Exception) -> None:
        self.stop()
        log.warning("module names are no longer recorded (%r); the program goes on", error)

    def _place(self, module: Module, enclosing: _Place | None) -> _Place:
        """The path of a module that is not known there yet."""
        with self._lock:
            if enclosing is None:
                return self._add_root(module)
            root = enclosing.root
            root.unknown += 1
            if _is_power_of_two(root.unknown):  # a walk is dear, and some modules are made anew
                self._walk(root)
            return self._known(self._modules, module) or enclosing

    def _add_root(self, module: Module) -> _Place:
        self._roots = [root for root in self._roots if root.module() is not None]
        name = type(getattr(module, _COMPILED, module)).__name__
        has_parameters = next(module.parameters(), None) is not None
        if has_parameters:
            self._labels[name] += 1
            if self._labels[name] > 1:
                name = f"{name}#{self._labels[name]}"
        root = _Root(weakref.ref(module), name, has_parameters=has_parameters)
        if has_parameters or next(module.children(), None) is not None:
            self._roots.append(root)
        self._walk(root)
        return _Place(root, "")

    def _walk(self, root: _Root) -> None:
        import torch

        module = root.module()
        if module is None:
            return
        parts = dict(module.named_modules())
        for path, part in parts.items():
            self._learn(self._modules, part, _Place(root, _plain(path)))
        root.has_stand_ins = False
        for path, parameter in _parameters(module, parts):
            if isinstance(parameter, torch.nn.Parameter):
                self._learn(self._parameters, parameter, _Place(root, _plain(path)))
            else:  # functional_call has put it there until it returns
                root.has_stand_ins = True
        inside = {id(part) for part in parts.values() if part is not module}
        self._roots = [
            other
            for other in self._roots
            if (outer := other.module()) is not None and id(outer) not in inside
        ]

    @staticmethod
    def _learn(known: dict[int, tuple[weakref.ref[Any], _Place]], thing: Any, at: _Place) -> None:
        key = id(thing)
        # What is called holds all it needs: when Python ends, the names in this module are None.
        known[key] = weakref.ref(thing, functools.partial(_forget, known, key)), at

    @staticmethod
    def _known(known: dict[int, tuple[weakref.ref[Any], _Place]], thing: Any) -> _Place | None:
        entry = known.get(id(thing))
        return entry[1] if entry is not None and entry[0]() is thing else None

    def _full(self, place: _Place) -> str:
        return place.full(has_roots=self._has_several_roots())

    def _has_several_roots(self) -> bool:
        """Whether several of those with parameters are alive."""
        if len(self._roots) < 2:
            return False
        return sum(root.has_parameters and root.module() is not None for root in self._roots) > 1


def _nothing() -> None:
    """Take back nothing."""


def _facts(parameter: Any) -> tuple[tuple[int, ...] | None, torch.dtype, bool]:
    """Shape (None: not known), dtype, whether it requires a gradient."""
    try:
        shape = parameter.shape
    except RuntimeError:  # nested, or not made yet
        shape = None
    return shape, parameter.dtype, parameter.requires_grad


def _forget(known: dict[int, tuple[weakref.ref[Any], _Place]], key: int, dead: Any) -> None:
    entry = known.get(key)
    if entry is not None and entry[0] is dead:
        del known[key]


def _parameters(module: Module, parts: dict[str, Module]) -> Iterable[tuple[str, Tensor]]:
    """What a module's ``named_parameters`` gives, which would walk through all parts once more.

    Args:
        module: the outermost one.
        parts: what its ``named_modules`` gives.
    """
    import torch

    if type(module).named_parameters is not torch.nn.Module.named_parameters:
        return module.named_parameters()  # FSDP's has names of its own
    found: dict[int, tuple[str, Tensor]] = {}
    for path, part in parts.items():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                found.setdefault(id(parameter), (f"{path}.{name}" if path else name, parameter))
    return found.values()


def _plain(path: str) -> str:
    if _COMPILED not in path:
        return path
    return ".".join(part for part in path.split(".") if part != _COMPILED)


def _is_power_of_two(count: int) -> bool:
    return count & (count - 1) == 0
