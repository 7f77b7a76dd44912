"""Watching what each rank's own backward gives, what is left in ``.grad``, what optimizers get.

Note [The gradient of this rank]
Two hooks of each parameter, before and after all of the program's, see the gradient that backward
has computed in this process: DDP and the optimizer get it later. Nothing is called again, so that
random numbers, checkpoints, autocast and hooks inside the graph are those of the run.

Note [Which steps]
The first step of each optimizer is noted, and the last after 1, 2, 4, 8 … others. All ranks count
alike. What happened between two steps is noted if one of them is to be.
"""

from __future__ import annotations

import functools
import itertools
import threading
import weakref
import zlib
from dataclasses import dataclass, field
from types import CodeType
from typing import TYPE_CHECKING, Any, Final, cast

import torch
import torch.distributed as dist
from torch import Tensor

from agviz.check.checksums import checksum, has_memory
from agviz.check.ranks.loss import reducing
from agviz.check.ranks.notes import (
    DDP,
    IGNORED,
    NEW,
    OUTSIDE,
    SOME,
    CallNote,
    LossNote,
    ParameterNote,
    PassNote,
    RankNotes,
    StepNote,
)
from agviz.check.saved import seen
from agviz.record.arguments import tensors_given, tensors_of
from agviz.record.global_hooks import MODULE_PLACED, STEP_BEGINS, GlobalHooks
from agviz.record.ranks.calls import CollectiveCalls
from agviz.record.ranks.conversions import Conversions
from agviz_engine.errors import comes_from_outside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch.nn import Module
    from torch.utils.hooks import RemovableHandle

    from agviz.record.files import Files
    from agviz.record.names import Names
    from agviz.traces.rows import Frame

_PLAIN: Final = (Tensor, torch.nn.Parameter)
_MOST_ELEMENTS: Final = 1_000_000
"""Of all parameters of a step."""
_MOST_OF_ONE: Final = 65_536
_FEWEST_OF_ONE: Final = 16
_MOST_OPTIMIZERS: Final = 4
_MOST_CALLS: Final = 256
"""Of modules between two passes."""
_MOST_PASSES: Final = 1_024
"""Between two steps."""
_MOST_INPUTS: Final = 16
_LOW: Final = (torch.float16, torch.bfloat16)
_OF_LOW, _OF_FLOAT = 3e-2, 1e-3
_SYNCHRONISES_STATISTICS: Final = torch.nn.SyncBatchNorm


@dataclass(slots=True)
class _State:
    """A parameter between two steps."""

    parameter: Tensor
    most: int
    """Elements of it that are kept."""
    own: Tensor | None = None
    reduced: Tensor | None = None
    passes: list[int] = field(default_factory=list)
    arrived: Tensor | None = None
    """During a pass: what comes to the first hook."""
    hook: CodeType | None = None
    """The code of the program's first hook of it."""
    hooked: tuple[Tensor, Tensor] | None = None
    """What came to the program's hooks, and what they gave, where that is another."""
    writes: list[Any] = field(default_factory=list)
    """Stacks of what wrote to its gradient since the last pass."""
    written: tuple[Tensor, Tensor] | None = None
    """What a pass has left without reducing it, and what was there when the next began."""
    written_before: Any = None


@dataclass(slots=True)
class _Called:
    """A call of a module, until the next pass."""

    module: weakref.ref[Module]
    captured: Any
    inputs: tuple[str, ...]
    batch: int | None
    syncs: bool


class RankWatch:
    """Notes what the comparison of ranks needs, in this process.

    Args:
        names: names parameters.
        files: gives files the names that a reader knows them by.
        capture: captures the stack of this thread.
        frame: the program's line in such a stack.
        file: a line of a file.
    """

    def __init__(
        self,
        names: Names,
        files: Files,
        capture: Callable[[], Any],
        frame: Callable[[Any], Frame | None],
        file: Callable[[str, int, str], Frame],
    ) -> None:
        self._names, self._capture, self._frame, self._file = names, capture, frame, file
        self._conversions = Conversions()
        self._collectives = CollectiveCalls(
            self._collective_called, files, lambda: (0, False), lambda: None
        )
        self._collective: Any = None
        self._thread = threading.get_ident()
        self._handles: list[RemovableHandle] = []
        self._global_hooks = GlobalHooks()
        self._hooks: list[tuple[Tensor, RemovableHandle, bool]] = []
        """During a pass: parameter, our hook, and whether it had none before."""
        self._depth = 0
        """Of modules that call each other."""
        self._ddps: weakref.WeakSet[Any] = weakref.WeakSet()
        """All that the program has made."""
        self._running = 0
        """Calls of backward, inside of each other."""
        self._called: list[_Called] = []
        self._outputs: list[tuple[Any, bool]] = []
        """Nodes of outputs of modules, and whether it is DDP's."""
        self._passes: list[PassNote] = []
        self._has_stepped = False
        self._states: dict[int, _State] = {}
        self._memory: dict[int, _State] = {}
        """By address of the gradient."""
        self._steps: weakref.WeakKeyDictionary[Any, tuple[int, int]] = weakref.WeakKeyDictionary()
        """Number of an optimizer, and of its next step."""
        self._kept: dict[int, list[StepNote]] = {}
        self._place = 0, 1
        """Rank, and how many there are."""
        self._gave_up = ""

    def start(self) -> None:
        """Observe modules, optimizers and collectives."""
        hooks = torch.nn.modules.module
        self._handles = [
            hooks.register_module_forward_pre_hook(self._entered),
            hooks.register_module_forward_hook(self._left, with_kwargs=True, always_call=True),
        ]
        self._global_hooks.put(MODULE_PLACED, self._placed)
        self._global_hooks.put(STEP_BEGINS, self._step_begins)
        self._conversions.start()
        if dist.is_available():
            self._collectives.start()

    def stop(self) -> None:
        """Observe nothing more."""
        while self._handles:
            self._handles.pop().remove()
        self._global_hooks.clear()
        self._unhook()
        self._conversions.stop()
        if dist.is_available():
            self._collectives.stop()

    def notes(self) -> RankNotes:
        """What was noted."""
        steps = [step for several in self._kept.values() for step in several]
        why_not = self._gave_up
        if not why_not and self._place[1] == 1:
            why_not = "no process group of several ranks was there when backward ran"
        elif not why_not and not steps:
            why_not = "no optimizer stepped with plain parameters, no shards, that backward reached"
        return RankNotes(*self._place, steps, why_not)

    def _placed(self, module: Module, _name: str, _submodule: Module) -> None:
        if isinstance(module, torch.nn.parallel.DistributedDataParallel):
            self._ddps.add(module)

    # -- the forward ----------------------------------------------------------------------------

    def _entered(self, _module: Module, _args: Any) -> None:
        self._depth += threading.get_ident() == self._thread

    def _left(self, module: Module, args: Any, *given: Any) -> None:
        """``given`` is what was given by name, and the output; after an error, one None."""
        if threading.get_ident() != self._thread:
            return
        self._depth -= 1
        try:
            if len(given) == 2:
                self._note_call(module, args, *given)
        except Exception as error:
            if comes_from_outside(error):
                raise
            self._give_up(error)

    def _note_call(self, module: Module, args: Any, kwargs: Any, output: Any) -> None:
        is_ddp = isinstance(module, torch.nn.parallel.DistributedDataParallel)
        is_inner = not is_ddp and self._depth == 0
        if not (is_ddp or is_inner) or not self._is_wanted() or not torch.is_grad_enabled():
            return
        with torch._C.DisableTorchFunction():
            given = [each for _, each in itertools.islice(tensors_of(args, kwargs), _MOST_INPUTS)]
            sums = tuple(str(checksum(each)) for each in given if each.numel() > 1)
            batch = next((each.shape[0] for each in given if each.dim()), None)
            syncs = not is_ddp or bool(cast("Any", module).require_backward_grad_sync)
            called = _Called(weakref.ref(module), self._capture(), sums, batch, syncs)
            if len(self._called) < _MOST_CALLS:
                self._called.append(called)
            nodes = [each.grad_fn for _, each in tensors_given(output)]
            self._outputs += [(node, is_ddp) for node in nodes if node is not None]

    # -- backward -------------------------------------------------------------------------------

    def backward_begins(self, roots: Sequence[Any]) -> None:
        """A call of backward or grad is about to run."""
        self._running += 1
        if self._running > 1 or threading.get_ident() != self._thread or not self._is_wanted():
            return
        self._place = _place()
        if self._place[1] == 1:
            return
        if self._has_stepped:
            self._passes, self._has_stepped = [], False
        if len(self._passes) == _MOST_PASSES:
            return
        self._passes.append(PassNote(self._frame(self._capture())))
        self._take_calls()
        self._take_loss(roots)
        self._hook()

    def backward_ended(self) -> None:
        """It has ended, well or not."""
        self._running -= 1
        if self._running or not self._hooks:
            return
        self._unhook()
        self._collective = None
        self._memory.clear()
        for state in self._states.values():
            state.reduced = _gradient(state)
            state.writes.clear()
            gradient = state.parameter.grad
            if gradient is not None and _is_dense(gradient):
                self._memory[gradient.untyped_storage().data_ptr()] = state

    def written(self, tensor: Tensor, captured: Any) -> None:
        """A torch function has written to a tensor."""
        if self._memory and type(tensor) in _PLAIN and tensor.layout is torch.strided:
            state = self._memory.get(tensor.untyped_storage().data_ptr())
            if state is not None and len(state.writes) < _MOST_CALLS:
                state.writes.append(captured)

    def _take_calls(self) -> None:
        ddps = [each for each in self._ddps if _is_of_all(each)]
        outer, inner = set(map(id, ddps)), {id(each.module) for each in ddps}
        for called in self._called:
            module = called.module()
            is_ddp = id(module) in outer
            if is_ddp or id(module) in inner:
                frame = self._frame(called.captured)
                note = CallNote(not is_ddp, called.syncs, frame, called.inputs, called.batch)
                self._passes[-1].calls.append(note)
        self._called.clear()

    def _take_loss(self, roots: Sequence[Any]) -> None:
        outputs, self._outputs = self._outputs, []
        by_ddp = [node for node, is_ddp in outputs if is_ddp]
        found = reducing(roots, by_ddp or [node for node, _ in outputs])
        if found is None:
            return
        then = seen(found.node)
        frame = None if then is None else self._frame(then.captured)
        note = LossNote(found.kind, found.count, 0.0, frame)
        self._passes[-1].loss = note

        def comes(incoming: tuple[Tensor | None, ...]) -> None:
            if incoming[0] is not None and incoming[0].numel() == 1:
                note.scale = float(incoming[0].item())

        found.node.register_prehook(comes)

    def _hook(self) -> None:
        """Note [The gradient of this rank]."""
        parameters = list(self._parameters())
        most = max(_FEWEST_OF_ONE, min(_MOST_OF_ONE, _MOST_ELEMENTS // max(1, len(parameters))))
        number = len(self._passes) - 1
        for parameter in parameters:
            state = self._states.get(id(parameter))
            if state is None:
                state = self._states[id(parameter)] = _State(parameter, most)
            self._begin(state)
            theirs = cast("Any", parameter)._backward_hooks
            codes = (getattr(each, "__code__", None) for each in (theirs or {}).values())
            state.hook = next((code for code in codes if isinstance(code, CodeType)), None)
            first = parameter.register_hook(functools.partial(_arrived, state))
            hooks = cast("Any", parameter)._backward_hooks
            others = {key: each for key, each in hooks.items() if key != first.id}
            own = hooks[first.id]
            hooks.clear()  # C++ calls them in the order in which the dict got them
            hooks[first.id] = own
            hooks.update(others)
            last = parameter.register_hook(functools.partial(_sent, state, number))
            self._hooks += [(parameter, first, False), (parameter, last, theirs is None)]

    def _begin(self, state: _State) -> None:
        """What is in ``.grad`` when a pass begins."""
        there = _gradient(state)
        if there is None or not bool(there.any()):
            state.own, state.reduced, state.passes = None, None, []
            state.hooked, state.written, state.written_before = None, None, None
        elif state.reduced is None or not state.passes:
            state.own = there
        elif not torch.equal(there, state.reduced) and not there.isnan().any():
            state.own = there
            has_synced = any(each.syncs for each in self._passes[state.passes[-1]].calls)
            if not has_synced and state.written is None:
                state.written = state.reduced, there
                state.written_before = state.writes[-1] if state.writes else None

    def _unhook(self) -> None:
        without: list[Tensor] = []
        while self._hooks:
            parameter, handle, had_none = self._hooks.pop()
            handle.remove()
            if had_none:
                without.append(parameter)
        for parameter in without:
            if not cast("Any", parameter)._backward_hooks:
                cast("Any", parameter)._backward_hooks = None

    def _parameters(self) -> Iterator[Tensor]:
        known = set()
        for _, root in self._names.roots():
            for parameter in root.parameters():
                if id(parameter) not in known and parameter.requires_grad and _is_dense(parameter):
                    known.add(id(parameter))
                    yield parameter

    # -- steps ----------------------------------------------------------------------------------

    def _step_begins(self, optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if threading.get_ident() != self._thread or self._running:
            return
        number, step = self._steps.setdefault(optimizer, (len(self._steps), 0))
        self._steps[optimizer] = number, step + 1
        parameters = [each for group in optimizer.param_groups for each in group["params"]]
        states = [self._states.pop(id(each)) for each in parameters if id(each) in self._states]
        self._has_stepped = True
        if not states or not _is_noted(step) or number >= _MOST_OPTIMIZERS:
            return
        try:
            with torch._C.DisableTorchFunction(), torch.no_grad():
                note = self._step(number, step, states)
            if note.parameters:
                self._kept[number] = [*self._kept.get(number, [])[:1], note]
        except Exception as error:
            if comes_from_outside(error):
                raise
            self._give_up(error)

    def _step(self, number: int, step: int, states: list[_State]) -> StepNote:
        ddps = list(self._ddps)
        places = _places(ddps)
        names = [(self._names.parameter(each.parameter), each) for each in states]
        return StepNote(
            optimizer=number,
            step=step,
            passes=self._passes,
            parameters={
                name: self._parameter(state, *places.get(id(state.parameter), (OUTSIDE, False)))
                for name, state in names
                if name and state.parameter.grad is not None
            },
            collective=self._frame(self._collective),
            joins=any(each._join_config.enable for each in ddps),
            has_own_statistics=any(_normalises_alone(each) for each in ddps),
        )

    def _parameter(self, state: _State, place: str, is_compressed: bool) -> ParameterNote:
        code = state.hook
        given = _gradient(state)
        is_other = given is None or state.reduced is None or not torch.equal(given, state.reduced)
        write = state.writes[-1] if state.writes and is_other else None
        parameter = state.parameter
        where = self._conversions.of(parameter) if place in {IGNORED, NEW} else None
        return ParameterNote(
            place=place,
            value=zlib.crc32(_sample(parameter.detach(), state.most).numpy().tobytes()),
            passes=tuple(state.passes),
            tolerance=_OF_LOW if parameter.dtype in _LOW else _OF_FLOAT,
            is_compressed=is_compressed,
            placed=self._frame(where),
            hook=None
            if code is None
            else self._file(code.co_filename, code.co_firstlineno, code.co_name),
            written_before=self._frame(state.written_before),
            written_after=self._frame(write),
            own=state.own,
            reduced=state.reduced,
            given=given,
            before_hook=None if state.hooked is None else state.hooked[0],
            after_hook=None if state.hooked is None else state.hooked[1],
            before_write=None if state.written is None else state.written[0],
            after_write=None if state.written is None else state.written[1],
        )

    def _give_up(self, error: Exception) -> None:
        self.stop()
        self._kept.clear()
        self._gave_up = f"an error of agviz's own ended it: {type(error).__name__}: {error}"

    def _is_wanted(self) -> bool:
        """Note [Which steps]."""
        steps = [step for number, step in self._steps.values() if number < _MOST_OPTIMIZERS]
        return not steps or any(map(_is_noted, steps))

    def _collective_called(self) -> Any:
        self._collective = self._capture()
        return self._collective


def _arrived(state: _State, gradient: Tensor) -> None:
    """A gradient has come to a parameter, before the program's hooks."""
    with torch._C.DisableTorchFunction():
        state.arrived = _sample(gradient, state.most) if _is_dense(gradient) else None


def _sent(state: _State, number: int, gradient: Tensor) -> None:
    """The program's hooks have had it."""
    with torch._C.DisableTorchFunction(), torch.no_grad():
        arrived, state.arrived = state.arrived, None
        if arrived is None or not _is_dense(gradient):
            return
        sent = arrived
        if state.hook is not None:
            sent = _sample(gradient, state.most)
            if state.hooked is None and not torch.equal(sent, arrived):
                state.hooked = arrived, sent
        state.own = sent if state.own is None else state.own + sent
        state.passes.append(number)


def _is_noted(step: int) -> bool:
    return step & (step - 1) == 0


def _place() -> tuple[int, int]:
    if not dist.is_available() or not dist.is_initialized():
        return 0, 1
    return dist.get_rank(), dist.get_world_size()


def _is_of_all(ddp: Any) -> bool:
    """Whether all ranks are in its group, and not some of them, as beside tensor parallelism."""
    return bool(ddp.process_group.size() == dist.get_world_size())


def _places(ddps: Sequence[Any]) -> dict[int, tuple[str, bool]]:
    """Where parameters are, by identity, and whether they are compressed on their way."""
    found: dict[int, tuple[str, bool]] = {}
    for each in ddps:
        is_for_all = _is_of_all(each)
        is_compressed = bool(getattr(each, "_comm_hooks", ()))
        known = {id(parameter) for parameter in each._module_parameters}
        ignored = set(each.parameters_to_ignore)
        for name, parameter in each.module.named_parameters():
            place = DDP if id(parameter) in known else IGNORED if name in ignored else NEW
            place = place if is_for_all else SOME
            found[id(parameter)] = place, is_compressed
    return found


def _normalises_alone(ddp: Any) -> bool:
    kinds = torch.nn.modules.batchnorm._BatchNorm
    return any(
        isinstance(each, kinds) and each.training and not isinstance(each, _SYNCHRONISES_STATISTICS)
        for each in ddp.modules()
    )


def _is_dense(tensor: Tensor) -> bool:
    return type(tensor) in _PLAIN and tensor.layout is torch.strided and has_memory(tensor)


def _gradient(state: _State) -> Tensor | None:
    """What is in ``.grad``; None: nothing, or nothing that can be read."""
    gradient = state.parameter.grad
    if gradient is None or not _is_dense(gradient):
        return None
    return _sample(gradient.detach(), state.most)


def _sample(tensor: Tensor, most: int) -> Tensor:
    """Note [Some of the elements] in ``notes.py``: a copy as float64, on the CPU."""
    with torch.no_grad():
        if tensor.is_complex():
            tensor = torch.view_as_real(tensor)
        flat = tensor.reshape(-1)
        every = max(1, -(-flat.numel() // most))
        return flat[::every].to(device="cpu", dtype=torch.float64, copy=True)
