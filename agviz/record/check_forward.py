"""The forward as the program calls it: a row for each torch function, with its tensors.

Note [What is seen]
A ``TorchFunctionMode`` observes every torch function that is called from Python on its thread: on
the one that began the recording, and on others, and during backward (where
``torch.utils.checkpoint`` computes anew), from the call of a module to its end. Of an optimizer's
step only what writes to parameters is kept, and it is measured when the parameters are used. What
a torch function written in Python calls in turn, what runs in C++, constructors such as
``torch.Tensor(x)``, and tensors without torch functions (numpy) are not seen. It stays away from
compilers (``torch.compile``, ``torch.export``, ``torch.jit.trace``), ``torch.func`` and the
capture of CUDA graphs, and from modules that would leave their fast path because a mode is there.

Note [Modes of threads that go on]
A mode can be taken off by its own thread only. One that is left where a thread ends may abort the
process: torch takes the GIL to free it, which ends the thread while Python shuts down, in C++ that
must not raise. So where the recording stops and other threads have the mode put on inside a module,
the hook that takes it off stays until the last of them has left its module.
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final, Self, cast

import torch
from torch import Tensor
from torch.autograd import function as autograd_function
from torch.overrides import TorchFunctionMode

from agviz.measure import health
from agviz.record import capturing, mode_stack, torch_functions
from agviz.record.arguments import tensors_given, tensors_of, words
from agviz.record.elements.forward_origins import is_wrong
from agviz.record.forward_ops import ForwardOp, ForwardOps, ForwardTensor
from agviz.record.gates import NAME, gates_of
from agviz.record.global_hooks import STEP_BEGINS, STEP_ENDS, GlobalHooks
from agviz.record.provenance import Provenance
from agviz.record.swapping import when_swapped
from agviz.record.tensor_identity import NO_MEMORY, Identities
from agviz.record.torch_functions import Traits
from agviz.traces.forward import INSIDE, READS_GRADIENT
from agviz_engine.emit import Emitter
from agviz_engine.errors import comes_from_outside
from agviz_engine.events import CPU_QUEUE, NO_GRAPH_TASK
from agviz_engine.tensor_facts import UNKNOWN_NODE, node_nr_reader
from agviz_engine.thread_state import current, program_ran
from agviz_engine.torch_modes import legacy_vmap_level

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from torch.nn import Module
    from torch.utils.hooks import RemovableHandle

    from agviz.record.capturing import Way
    from agviz.record.elements.forward_origins import ForwardOrigins
    from agviz.record.names import Names
    from agviz.traces.elements import LocatedElements
    from agviz_engine.instruments import Registry

log = logging.getLogger("agviz")

_C = cast("Any", torch._C)
_MOST_MEASURED: Final = 64
"""Tensors of one call that are measured."""
_MOST_WAITING: Final = 50_000
"""Calls that are not written yet (some 100 MB); the older half goes when there are more."""
_MOST_NAMES: Final = 10_000
_FAST_PATHS: Final = (
    torch.nn.MultiheadAttention,
    torch.nn.TransformerEncoder,
    torch.nn.TransformerEncoderLayer,
)
"""Modules that in evaluation take a fast path unless a mode is there."""


class _Call:
    """A call under way."""

    __slots__ = (
        "arguments",
        "captured",
        "does",
        "first_nr",
        "grad_enabled",
        "id",
        "inputs",
        "module",
        "recomputed_in",
        "tensors",
        "thread",
        "time_ns",
    )

    def __init__(self, number: int, does: Traits, module: str) -> None:
        self.id = number
        self.time_ns = time.monotonic_ns()
        self.does = does
        self.module = module
        here = current()
        self.thread = here.thread_id
        graph_task = here.current_graph_task
        self.recomputed_in = NO_GRAPH_TASK if graph_task is None else graph_task.id
        self.grad_enabled = torch.is_grad_enabled()
        self.captured: Any = None
        self.arguments = ""
        self.tensors: list[tuple[str, Tensor]] = []
        self.inputs: list[ForwardTensor] = []
        """The same, as they were."""
        self.first_nr: int = _C._autograd._get_sequence_nr()


class _Here(threading.local):
    """What of modules is under way on one thread."""

    def __init__(self) -> None:
        self.inside: Module | None = None
        """The outermost module on a thread, or within a graph task, that has no mode otherwise."""
        self.was_put = False
        """Whether the mode was there before that module."""
        self.away: Module | None = None
        """The module for which the mode was taken off."""
        self.is_compiled = False
        """Whether it was taken off for compiled code."""
        self.in_step = False
        """Whether an optimizer is at work."""


class _Mode(TorchFunctionMode):
    """Reports each call to :class:`CheckForward`; the call itself goes on as it would have."""

    def __init__(self, watch: CheckForward) -> None:
        super().__init__()
        self.watch = watch

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        watch = self.watch
        call = watch.begun(func, args, kwargs)
        if call is None:
            return func(*args, **kwargs)
        try:
            result = func(*args, **kwargs)
        except BaseException as error:
            watch.ended(call, args, kwargs, None, error)
            raise
        watch.ended(call, args, kwargs, result, None)
        return result


class CheckForward:
    """Keeps what the program calls between :meth:`start` and :meth:`stop`.

    Args:
        names: where parameter names and module paths come from.
        registry: whose instruments are to know the threads.
        provenance: what resolves stacks; None: one of its own.
    """

    def __init__(
        self, names: Names, registry: Registry, provenance: Provenance | None = None
    ) -> None:
        self._names = names
        self._emit = Emitter(registry)
        self._provenance = provenance or Provenance()
        self._mode = _Mode(self)
        self._is_listening = False
        self._way: Way | None = None
        self._here = _Here()
        self._identities = Identities()
        self._functions: dict[Any, Traits | None] = {}
        """None: it says nothing of a forward."""
        self._next_id = 0
        self._ids = threading.RLock()
        self._waiting: list[ForwardOp] = []
        self.origins: ForwardOrigins | None = None
        """Knows which elements are not finite."""
        self._has_forgotten = False
        self._handles: list[RemovableHandle] = []
        self._leaving: RemovableHandle | None = None
        """Of the hook that stays, Note [Modes of threads that go on], after the others."""
        self._inside: set[int] = set()
        """Identities of threads on which the mode is put until a module returns."""
        self._step_hooks = GlobalHooks()
        self._undo: list[Callable[[], None]] = []
        self._node_nr: Callable[[Tensor], int | None]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Observe what this thread calls, and others inside modules."""
        if self._is_listening:
            return
        self._is_listening = True
        self._way = capturing.way()
        self._node_nr = node_nr_reader()
        hooks = torch.nn.modules.module
        self._handles = [hooks.register_module_forward_pre_hook(self._entered)]
        if self._leaving is None:
            self._leaving = hooks.register_module_forward_hook(self._left, always_call=True)
        self._step_hooks.put(STEP_BEGINS, self._step_began)
        self._step_hooks.put(STEP_ENDS, self._step_ended)
        self._observe_custom_functions()
        self._undo.append(when_swapped(self._forget_tensor))
        mode_stack.put(self._mode)

    def stop(self) -> None:
        """Observe nothing more.

        Called while this thread calls a torch function that is observed, it leaves the mode: torch
        puts it back then. It passes on whatever comes.
        """
        self._is_listening = False
        while self._handles:
            self._handles.pop().remove()
        self._step_hooks.clear()
        while self._undo:
            self._undo.pop()()
        mode_stack.take(self._mode)
        self._end_leaving()

    def _end_leaving(self) -> None:
        """Note [Modes of threads that go on]."""
        with self._ids:
            if self._leaving is not None and not (self._is_listening or self._inside):
                self._leaving.remove()
                self._leaving = None

    def taken(self, graph_task: int) -> ForwardOps:
        """What was called since the last time, for a graph task that begins or ends.

        ``graph_task=-1``: for one that has not begun yet.
        """
        until = self._next_id
        ops = self._waiting[:]
        del self._waiting[: len(ops)]
        return ForwardOps(graph_task, until, ops, self._provenance.resolve)

    def number(self, tensor: Tensor) -> int:
        """Number of a tensor among those of torch functions."""
        return self._identities.tensor(tensor).number

    def memory(self, tensor: Tensor) -> int:
        """The number by which rows know the storage of a tensor; -1: it has none."""
        memory = self._identities.memory(tensor)
        return NO_MEMORY if memory is None else memory.number

    def forked(self) -> None:
        """In a child: what the parent called is not its own."""
        self._ids = threading.RLock()
        self._inside &= {threading.get_ident()}
        self._waiting.clear()

    def stay_out_of_compiled_code(self) -> None:
        """Take the mode off where Dynamo runs code; called once that is imported."""
        module = cast("Any", sys.modules["torch._dynamo.eval_frame"])
        names = "set_eval_frame", "_maybe_set_eval_frame"  # the first is not in all releases
        for name in filter(functools.partial(hasattr, module), names):
            own = getattr(module, name)

            def switched(callback: Any, own: Callable[..., Any] = own) -> Any:
                before = own(callback)
                if (before is None) != (callback is None):  # else Dynamo is at work itself
                    self._switch(is_compiled=callback is not None)
                return before

            setattr(module, name, switched)
            self._undo.append(lambda name=name, own=own: setattr(module, name, own))  # type: ignore[misc]

    # -- calls ----------------------------------------------------------------------------------

    def begun(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None = None
    ) -> _Call | None:
        """A torch function is about to run; None: it is not looked at."""
        if not self._is_listening:
            return None
        try:
            does = self._traits(function) if name is None else Traits.of(name)
            if does is None or not self._is_wanted() or self._is_of_a_step(does.name, args):
                return None
            if does.name == READS_GRADIENT and not _has_no_gradient(args):
                return None
            self._emit.thread("", CPU_QUEUE)
            with self._ids:
                call = _Call(self._next_id, does, self._names.current() or "")
                self._next_id += 1
            if self._way is not None:
                call.captured = self._way.one()
            with torch._C.DisableTorchFunction():
                call.arguments = words(args, kwargs)
                most = 0 if self._here.in_step else _MOST_MEASURED
                call.tensors = tensors_of(args, kwargs)
                call.inputs = [
                    self._described(place, tensor, measures=n < most, if_news=True)
                    for n, (place, tensor) in enumerate(call.tensors)
                ]
        except Exception as error:
            if comes_from_outside(error):
                raise
            self._give_up(error)
            return None
        return call

    def ended(
        self,
        call: _Call,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],  # noqa: ARG002 - a derived class reads it
        result: Any,
        error: BaseException | None,
    ) -> None:
        """It gave back ``result``, or raised ``error``."""
        try:
            end = _C._autograd._get_sequence_nr()
            name = call.does.name
            with torch._C.DisableTorchFunction():
                changed = self._changed(call)
                given = [] if error is not None else tensors_given(result)
                has_result = given or changed or error is not None or name == READS_GRADIENT
                if not has_result and not call.does.leaves_torch:
                    return
                made = _made(given, changed) if changed else given
                outputs = self._outputs(call.does, made)
                inside = gates_of(args, result) if name == NAME and given else None
                sequence_nr = self._sequence_nr(given or changed, call.first_nr, end)
                located: Sequence[LocatedElements] = ()
                if self.origins is not None and any(map(is_wrong, (*outputs, *call.inputs))):
                    located = self.origins.located(
                        call.id,
                        call.arguments,
                        call.inputs,
                        [tensor for _, tensor in call.tensors],
                        outputs,
                        [tensor for _, tensor in made],
                    )
                if inside is not None:
                    outputs = [*outputs, self._described(INSIDE, inside, measures=True)]
            self._waiting.append(
                ForwardOp(
                    call.id,
                    call.time_ns,
                    call.thread,
                    name,
                    call.arguments,
                    call.module,
                    call.captured,
                    call.grad_enabled,
                    call.recomputed_in,
                    sequence_nr,
                    call.first_nr,
                    max(end, call.first_nr),
                    "" if error is None else type(error).__name__,
                    call.inputs,
                    outputs,
                    located,
                )
            )
            if len(self._waiting) > _MOST_WAITING:
                self._forget_older_half()
        except Exception as failure:
            if comes_from_outside(failure):
                raise
            self._give_up(failure)

    def _forget_tensor(self, tensor: Tensor) -> Callable[[], None]:
        self._identities.forget(tensor)
        return lambda: None

    def _forget_older_half(self) -> None:
        del self._waiting[: _MOST_WAITING // 2]
        if not self._has_forgotten:
            log.warning(
                "more than %s torch functions were called since the last backward pass; only the"
                " last of them are recorded",
                f"{_MOST_WAITING:,}",
            )
        self._has_forgotten = True

    def _traits(self, function: Any) -> Traits | None:
        try:
            return self._functions[function]
        except KeyError:
            name = torch_functions.name_of(function)
            if len(self._functions) > _MOST_NAMES:
                self._functions.clear()
            found = None if torch_functions.is_query(name) else Traits.of(name)
            return self._functions.setdefault(function, found)

    def _is_wanted(self) -> bool:
        """Note [What is seen]."""
        if torch.compiler.is_compiling():
            return False
        if current().current_graph_task is not None and self._here.inside is None:
            return False  # the engine itself asks
        if _C._get_tracing_state() is not None or _C._are_functorch_transforms_active():
            return False
        if legacy_vmap_level():
            return False
        return not (torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())

    def _is_of_a_step(self, name: str, args: tuple[Any, ...]) -> bool:
        """Whether it belongs to an optimizer's step, and writes to no parameter."""
        if not self._here.in_step or torch.is_grad_enabled():
            return False
        first = args[0] if args else None
        if isinstance(first, list | tuple) and first:
            first = first[0]
        return not (name.endswith("_") and isinstance(first, torch.nn.Parameter))

    def _give_up(self, error: Exception) -> None:
        self.stop()
        log.warning("the forward is no longer recorded (%r); the program goes on", error)

    # -- tensors --------------------------------------------------------------------------------

    def _described(
        self, place: str, tensor: Tensor, *, measures: bool, if_news: bool = False
    ) -> ForwardTensor:
        """A tensor as it is now.

        Args:
            place: its place.
            tensor: the tensor.
            measures: whether to measure it.
            if_news: only where nothing was measured of it since it was last written to.
        """
        known, memory = self._identities.tensor(tensor), self._identities.memory(tensor)
        version, dtype = _version(tensor), tensor.dtype
        number, writes = (NO_MEMORY, 0) if memory is None else (memory.number, memory.writes)
        found = None
        if measures and (dtype.is_floating_point or dtype.is_complex):
            state = number, writes, version
            if not if_news or known.measured != state:
                known.measured = state
                found = health.health_of(tensor)
        parameter = ""
        if type(tensor) is not Tensor and isinstance(tensor, torch.nn.Parameter):
            parameter = self._names.parameter(tensor) or ""
        return ForwardTensor(
            place,
            known.number,
            number,
            version,
            parameter,
            _shape(tensor) if found is None or found.shape is None else _shape_text(found.shape),
            health.name_of(dtype),
            tensor.requires_grad,
            self._node_nr(tensor) is None,
            found,
        )

    def _changed(self, call: _Call) -> list[tuple[str, Tensor]]:
        """The arguments that it wrote to."""
        changed = []
        for before, (place, tensor) in zip(call.inputs, call.tensors, strict=True):
            if _version(tensor) == before.version and not (call.does.sets and place == "0"):
                continue
            if self._identities.tensor(tensor).number != before.tensor:
                continue
            changed.append((f"({place})", tensor))
            memory = self._identities.memory(tensor)
            if memory is not None:
                memory.writes += 1
        if changed:
            program_ran()
        return changed

    def _outputs(self, does: Traits, made: list[tuple[str, Tensor]]) -> list[ForwardTensor]:
        measures = len(made) <= _MOST_MEASURED and not does.leaves_unfilled
        in_step = self._here.in_step  # parameters are measured when they are used
        return [
            self._described(
                place,
                tensor,
                measures=measures and not (in_step and isinstance(tensor, torch.nn.Parameter)),
            )
            for place, tensor in made
        ]

    def _sequence_nr(
        self, tensors: Iterable[tuple[str, Tensor]], first: int, end: int
    ) -> int | None:
        """Sequence number of the node of the first that has a new one."""
        if end <= first:
            return None
        for _, tensor in tensors:
            number = self._node_nr(tensor)
            if number == UNKNOWN_NODE:
                return end - 1  # what a function gives back is made by the last node it makes
            if number is not None and first <= number < end:
                return number
        return None

    # -- modules and threads --------------------------------------------------------------------

    def _entered(self, module: Module, args: Any) -> None:  # noqa: ARG002
        if torch.compiler.is_compiling() or not self._is_listening:
            return
        here = self._here
        here.in_step = False  # it has ended, or waits for its closure
        if here.away is not None or here.is_compiled:
            return
        is_put = mode_stack.has(self._mode)
        if is_put and isinstance(module, _FAST_PATHS) and _may_be_fast(module):
            here.away = module
            mode_stack.take(self._mode)
        elif here.inside is None and (not is_put or current().current_graph_task is not None):
            here.inside, here.was_put = module, is_put
            self._inside.add(threading.get_ident())
            mode_stack.put(self._mode)
            if not self._listens():  # stopped since, and did not know of this thread
                self._leave(module)

    def _left(self, module: Module, args: Any, output: Any) -> None:  # noqa: ARG002
        if not torch.compiler.is_compiling():
            self._leave(module)

    def _leave(self, module: Module) -> None:
        here = self._here
        if here.away is module:
            here.away = None
            if self._is_listening:
                mode_stack.put(self._mode)
        elif here.inside is module:
            here.inside = None
            if not (here.was_put and self._is_listening):
                mode_stack.take(self._mode)
            self._inside.discard(threading.get_ident())
            self._end_leaving()

    def _listens(self) -> bool:
        """Whether it still does: another thread may have stopped it since that was asked."""
        return self._is_listening

    def _step_began(self, *_: Any) -> None:
        if not torch.compiler.is_compiling():
            self._here.in_step = True

    def _step_ended(self, *_: Any) -> None:
        if not torch.compiler.is_compiling():
            self._here.in_step = False

    def _switch(self, *, is_compiled: bool) -> None:
        """Compiled code begins, or ends, on this thread."""
        if is_compiled and mode_stack.has(self._mode):
            self._here.is_compiled = True
            mode_stack.take(self._mode)
        elif not is_compiled and self._here.is_compiled:
            self._here.is_compiled = False
            if self._is_listening:
                mode_stack.put(self._mode)

    # -- what no mode observes ------------------------------------------------------------------

    def _observe_custom_functions(self) -> None:
        """``Function.apply`` goes through its base class, which has no ``apply`` of its own."""
        base = cast("Any", autograd_function)._SingleLevelFunction
        before = vars(base).get("apply")  # of another recording
        watch = self

        def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
            own = before.__get__(None, cls) if before else cast("Any", super(base, cls)).apply
            call = None
            if mode_stack.has(watch._mode):
                call = watch.begun(None, args, kwargs, f"{cls.__qualname__}.apply")
            if call is None:
                return own(*args, **kwargs)
            try:
                result = own(*args, **kwargs)
            except BaseException as error:
                watch.ended(call, args, kwargs, None, error)
                raise
            watch.ended(call, args, kwargs, result, None)
            return result

        def undo() -> None:
            if vars(base).get("apply") is not ours:
                return
            if before is None:
                del base.apply
            else:
                base.apply = before

        ours = base.apply = classmethod(apply)
        self._undo.append(undo)


def _may_be_fast(module: Module) -> bool:
    """Whether a module of ``_FAST_PATHS`` may take its fast path."""
    if module.training:
        return False
    return not torch.is_grad_enabled() or not any(p.requires_grad for p in module.parameters())


def _has_no_gradient(args: tuple[Any, ...]) -> bool:
    """Whether a tensor is the result of a function, so that it never gets a ``.grad``."""
    with torch._C.DisableTorchFunction():
        tensor = args[0]
        return not tensor.is_leaf and not tensor.retains_grad


def _made(
    given: list[tuple[str, Tensor]], changed: list[tuple[str, Tensor]]
) -> list[tuple[str, Tensor]]:
    """What a function gave and what it changed, each once."""
    of_given = {id(tensor) for _, tensor in given}
    return [*given, *(each for each in changed if id(each[1]) not in of_given)]


def _version(tensor: Tensor) -> int | None:
    return None if tensor.is_inference() else tensor._version


def _shape(tensor: Tensor) -> str:
    try:
        shape = health.shape_of(tensor)
    except RuntimeError:  # not made yet
        return ""
    return "" if shape is None else _shape_text(shape)


@functools.lru_cache(_MOST_NAMES)
def _shape_text(shape: tuple[int, ...]) -> str:
    return str(list(shape))
