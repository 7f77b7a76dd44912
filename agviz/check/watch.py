"""Watching a program's forward for what ``agviz check`` looks at; the program's results stay.

What is seen is what ``--check-forward`` sees: Note [What is seen] in ``record/check_forward.py``.
"""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final, cast

import torch
from torch import Tensor

from agviz.check.broadcasting import ExpandedLoss, ExpandedTensors
from agviz.check.draws import Draws
from agviz.check.hooks import RepeatedHook, repeated_hooks
from agviz.check.kept_call import KeptCalls
from agviz.check.masks import Masks
from agviz.check.misread import MisreadInput, MixingView, misread
from agviz.check.plain_derivatives import PlainDerivatives
from agviz.check.precision.tape import ForwardTapes
from agviz.check.ranks.watch import RankWatch
from agviz.check.recomputation import Modes, Recomputations, random_state
from agviz.check.recurrent import RecurrentOutputs
from agviz.check.saved import ChangedTensor, SavedTensors, Write, nodes_to_run
from agviz.check.similarities import Similarities
from agviz.check.unrecorded_writes import UnrecordedWrites
from agviz.record import mode_stack
from agviz.record.arguments import tensors_given, words
from agviz.record.check_forward import CheckForward
from agviz.record.torch_functions import is_setter
from agviz.traces.rows import visible
from agviz_engine.errors import comes_from_outside

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from torch.nn import Module

    from agviz.check.kept_call import KeptCall
    from agviz.check.precision.tape import ForwardTape, TapeCall
    from agviz.record.names import Names
    from agviz.traces.rows import Frame
    from agviz_engine.instruments import Registry

log = logging.getLogger("agviz")

_C = cast("Any", torch._C)
_APPLY: Final = ".apply"
_OPEN: Final = frozenset({"numpy", "__array__", "__dlpack__", "untyped_storage", "storage"})
"""Functions that let others write to a tensor's memory."""
_MOST_CHANGED: Final = 1_000
_MOST_LOSSES: Final = 100
_NOT_THE_PROGRAMS: Final = ("torch.", "agviz.", "agviz_engine.")


class _WatchedCall:
    """A torch function under way."""

    __slots__ = (
        "captured",
        "first_nr",
        "kept",
        "name",
        "random_state",
        "taped",
        "words",
        "written",
    )

    def __init__(self, name: str, captured: Any) -> None:
        self.name = name
        self.captured = captured
        self.first_nr: int = _C._autograd._get_sequence_nr()
        self.kept: KeptCall | None = None
        self.taped: TapeCall | None = None
        self.words = ""
        self.random_state = 0
        self.written: list[Tensor] = []


class GradientWatch(CheckForward):
    """Sees the torch functions that a program calls, and the calls of backward.

    Args:
        names: where parameter names and module paths come from.
        registry: whose instruments are to know the threads.
        in_ranks: whether this process is one of several ranks that are to be compared.
    """

    def __init__(self, names: Names, registry: Registry, *, in_ranks: bool = False) -> None:
        super().__init__(names, registry)
        self.calls = KeptCalls()
        self.saved = SavedTensors()
        self.tapes = ForwardTapes(self.number, self.parameter)
        self.recomputations = Recomputations(lambda: self._moment, self._observed, self._capture)
        self.modes = Modes(lambda: self._moment, self._capture)
        self.changed: list[ChangedTensor] = []
        self.losses: list[ExpandedLoss] = []
        self.misread: list[MisreadInput | MixingView] = []
        self.masks = Masks()
        self.recurrent = RecurrentOutputs()
        self.expanded = ExpandedTensors()
        self.derivatives = PlainDerivatives()
        self.draws = Draws(self._drew)
        self.similarities = Similarities()
        self.unrecorded = UnrecordedWrites()
        self.hooks: dict[str, RepeatedHook] = {}
        """By name of the parameter."""
        self.ranks: RankWatch | None = None
        if in_ranks:
            files = self._provenance.files
            self.ranks = RankWatch(names, files, self._capture, self.frame, self.file)
        self.passes = 0
        self.nonfinite = 0
        """Passes whose roots held NaN or infinity."""
        self.first_nonfinite = -1
        """The first of them, counted from 0; -1: there is none."""
        self.gave_up = ""
        """Why nothing more was looked at."""
        self._moment = 0

    def start(self) -> None:
        """As ``CheckForward``'s."""
        super().start()
        self.recomputations.start()
        self.modes.start()
        self.draws.start()
        if self.ranks is not None:
            self.ranks.start()

    def stop(self) -> None:
        """As ``CheckForward``'s."""
        super().stop()
        self.recomputations.stop()
        self.modes.stop()
        self.draws.stop()
        if self.ranks is not None:
            self.ranks.stop()

    def frame(self, captured: Any) -> Frame | None:
        """The program's line in a captured stack."""
        if captured is None:
            return None
        return visible(self._provenance.resolve([captured])[0])

    def file(self, file: str, line: int, function: str) -> Frame:
        """A line of a file, as frames name it."""
        return self._provenance.files.frame(file, line, function)

    def function_of(self, node: str) -> type[Any] | None:
        """The custom Function whose node has this name; None: none that was seen, or several."""
        found = [each for each in self.calls.functions if f"{each.__name__}Backward" == node]
        return found[0] if len(found) == 1 else None

    def parameter(self, tensor: Tensor) -> str:
        """The name of a parameter; empty where it is none."""
        base = tensor._base
        return self._names.parameter(tensor if base is None else base) or ""

    def begun(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], name: str | None = None
    ) -> Any:
        """A torch function is about to run; None: it is not looked at."""
        if not self._is_listening:
            return None
        try:
            if name is None:
                does = self._traits(function)
                name = does.name if does else getattr(function, "__name__", "")
                if does is None and name not in _OPEN:
                    return None
            if not self._is_wanted():
                return None
            call = _WatchedCall(name, self._capture())
            with torch._C.DisableTorchFunction():
                if function is None and name.endswith(_APPLY):
                    call.kept = self.calls.before(name, args)
                elif _writes(name):
                    call.written = _first_tensors(args, kwargs)
                if self.recomputations.running():
                    call.words = words(args, kwargs)
                    call.random_state = random_state(name, next(iter(_tensors(args)), None))
                call.taped = self.tapes.before(function, name, args, kwargs, call.captured)
        except Exception as error:
            if comes_from_outside(error):
                raise
            self._give_up(error)
            return None
        return call

    def ended(
        self,
        call: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
        error: BaseException | None,
    ) -> None:
        """It gave back ``result``, or raised ``error``."""
        if error is not None:
            self.tapes.failed(call.name)
            if self.recomputations.running():
                self._in_checkpoint(call, [])
            return
        try:
            self._moment += 1
            end = _C._autograd._get_sequence_nr()
            with torch._C.DisableTorchFunction():
                given = [tensor for _, tensor in tensors_given(result)]
                for tensor in call.written:
                    self.saved.written(tensor, Write(self._moment, call.captured, call.name))
                    if self.ranks is not None:
                        self.ranks.written(tensor, call.captured)
                if end > call.first_nr:
                    then = (self._moment, call.captured, call.name)
                    results = given or call.written
                    self.saved.made(results, range(call.first_nr, end), then)
                    self._custom_function(call, args, given)
                if self.recomputations.running():
                    self._in_checkpoint(call, given)
                self._loss(call, args, kwargs, result)
                makes_nodes = end > call.first_nr
                self.tapes.after(call.taped, call.name, args, result, makes_nodes=makes_nodes)
        except Exception as failure:
            if comes_from_outside(failure):
                raise
            self._give_up(failure)

    def backward_begins(self, roots: Any, gradients: Any, inputs: Any) -> ForwardTape | None:
        """A call of backward or grad is about to run; gives the tape of its forward."""
        tape: ForwardTape | None = None
        try:
            self.passes += 1
            if self._is_listening:
                with torch._C.DisableTorchFunction():
                    if not all(map(_is_finite, _tensors(roots))):
                        self.nonfinite += 1
                        if self.first_nonfinite < 0:
                            self.first_nonfinite = self.passes - 1
                    tape = self.tapes.backward_begins(roots, gradients)
            if self._is_listening and len(self.changed) < _MOST_CHANGED:
                with torch._C.DisableTorchFunction():
                    nodes = nodes_to_run(roots, inputs)
                    self.derivatives.backward_begins(nodes)
                    self.draws.backward_begins(nodes)
                    self.unrecorded.backward_begins(nodes)
                    if not inputs:
                        self.derivatives.accumulated(nodes)
                    self.changed += self.saved.changed(nodes)
                    for each in repeated_hooks(nodes):
                        self.hooks.setdefault(self.parameter(each.tensor), each)
            if self.ranks is not None and self._is_listening:
                with torch._C.DisableTorchFunction():
                    self.ranks.backward_begins(roots)
        except Exception as error:
            if comes_from_outside(error):
                raise
            self._give_up(error)
        return tape

    def backward_ended(self, tape: ForwardTape) -> None:
        """A call of backward has left its gradients."""
        try:
            with torch._C.DisableTorchFunction():
                self.tapes.backward_ended(tape)
        except Exception as error:
            if comes_from_outside(error):
                raise
            self._give_up(error)

    def grad_gave(self, roots: Any, inputs: Any, result: Any) -> None:
        """A call of ``grad`` has given derivatives that have no graph."""
        try:
            if self._is_listening:
                with torch._C.DisableTorchFunction():
                    self.derivatives.given(roots, inputs, result, self._capture())
        except Exception as error:
            if comes_from_outside(error):
                raise
            self._give_up(error)

    def backward_left(self) -> None:
        """A call of backward or grad has ended, well or not."""
        try:
            if self.ranks is not None and self._is_listening:
                with torch._C.DisableTorchFunction():
                    self.ranks.backward_ended()
        except Exception as error:
            if comes_from_outside(error):
                raise
            self._give_up(error)

    def _drew(self, distribution: Any, result: Any) -> None:
        try:
            if self._is_listening and self._is_wanted():
                with torch._C.DisableTorchFunction():
                    self.draws.of_distribution(distribution, result, self._capture())
        except Exception as error:
            if comes_from_outside(error):
                raise
            self._give_up(error)

    def _entered(self, module: Module, args: Any) -> None:
        super()._entered(module, args)
        self.tapes.entered()

    def _left(self, module: Module, args: Any, output: Any) -> None:
        super()._left(module, args, output)
        try:
            if self._is_listening:
                self.recurrent.left(module, output, self._capture)
        except Exception as error:
            if comes_from_outside(error):
                raise
            self._give_up(error)
        self.tapes.left()

    @contextlib.contextmanager
    def _observed(self) -> Iterator[None]:
        """Torch takes the mode off while it calls backward, in which checkpoints compute anew."""
        is_put = mode_stack.has(self._mode) or not self._is_listening
        if not is_put:
            mode_stack.put(self._mode)
        try:
            yield
        finally:
            if not is_put:
                mode_stack.take(self._mode)

    def _capture(self) -> Any:
        return None if self._way is None else self._way.one()

    def _in_checkpoint(self, call: _WatchedCall, given: list[Tensor]) -> None:
        self.recomputations.called(call.name, call.words, call.captured, call.random_state, given)

    def _loss(
        self, call: _WatchedCall, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        found = self.expanded.called(call.name, args, kwargs, result, call.captured)
        self.derivatives.called(call.name, args, kwargs, result, call.captured)
        self.draws.called(call.name, args, kwargs, result, call.captured)
        self.similarities.called(call.name, args, kwargs, result, call.captured)
        self.unrecorded.called(call.name, args, kwargs, result, call.captured)
        if found is not None and len(self.losses) < _MOST_LOSSES:
            self.losses.append(found)
        self.masks.called(call.name, args, kwargs, call.captured)
        self.recurrent.called(call.name, args, kwargs, result, call.captured)
        otherwise = misread(call.name, args, kwargs, result, call.captured)
        if otherwise is not None and len(self.misread) < _MOST_LOSSES:
            self.misread.append(otherwise)

    def _custom_function(
        self, call: _WatchedCall, args: tuple[Any, ...], given: list[Tensor]
    ) -> None:
        if not call.name.endswith(_APPLY):
            return
        nodes = [each.grad_fn for each in given if isinstance(each.grad_fn, _C._FunctionBase)]
        if not nodes:
            return
        function = type(cast("Any", nodes[0]))._forward_cls
        if f"{function.__module__}.".startswith(_NOT_THE_PROGRAMS):
            return
        if call.kept is not None:
            call.kept.captured = call.captured
        self.calls.after(function, args, call.kept)
        about = self.calls.functions[function]
        number = about.calls

        def note(incoming: tuple[Tensor | None, ...]) -> None:
            about.overtaken += about.calls > number
            about.is_differentiated_twice |= torch.is_grad_enabled()
            about.is_scaled |= any(
                each is not None and bool((each != 1).any()) for each in incoming
            )

        cast("Any", nodes[0]).register_prehook(note)

    def _give_up(self, error: Exception) -> None:
        self.stop()
        self.gave_up = f"{type(error).__name__}: {error}"
        log.warning("gradients are no longer checked (%r); the program goes on", error)


def _writes(name: str) -> bool:
    last = name.rpartition(".")[2]
    in_place = last.endswith("_") and not last.endswith("__")
    return (
        in_place
        or last in {"__setitem__", *_OPEN, "__iadd__", "__isub__", "__imul__"}
        or (is_setter(name) and "data" in name)
    )


def _first_tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    first = args[0] if args else next(iter(kwargs.values()), None)
    return _tensors(first if isinstance(first, list | tuple) else [first])


def _tensors(values: Iterable[Any]) -> list[Tensor]:
    return [each for each in values if isinstance(each, Tensor)]


def _is_finite(tensor: Tensor) -> bool:
    try:
        return bool(tensor.detach().isfinite().all())
    except RuntimeError:  # a sparse one, or one without numbers
        return True


def watched_engine(
    own: Any,
    begins: Callable[[Any, Any, Any], ForwardTape | None],
    ended: Callable[[ForwardTape], None],
    left: Callable[[], None],
    gave: Callable[[Any, Any, Any], None],
) -> Any:
    """An engine that runs everything on ``own``, and says when a call begins and has ended.

    Args:
        own: the engine.
        begins: gets roots, gradients and inputs of a call; gives the tape of its forward.
        ended: gets the tape, when the call has left its gradients.
        left: is called when the call has ended, well or not.
        gave: gets roots, inputs and result of a call that gave derivatives without a graph.
    """

    class _Engine(_C._ImperativeEngine):  # type: ignore[misc, name-defined]
        def queue_callback(self, callback: Callable[[], None]) -> None:
            own.queue_callback(callback)

        def is_checkpoint_valid(self) -> bool:
            return bool(own.is_checkpoint_valid())

        def run_backward(self, *args: Any, **kwargs: Any) -> Any:
            names = ("tensors", "grad_tensors", "keep_graph", "create_graph", "inputs")
            told = {**kwargs, **dict(zip(names, args, strict=False))}
            inputs = told.get("inputs")
            tape = begins(told.get("tensors"), told.get("grad_tensors") or (), inputs)
            try:
                result = own.run_backward(*args, **kwargs)
            finally:
                left()
            if not told.get("accumulate_grad") and not told.get("create_graph"):
                gave(told.get("tensors"), inputs, result)
            is_plain = told.get("accumulate_grad") and not inputs and not told.get("create_graph")
            if tape is not None and is_plain:
                ended(tape)
            return result

    return _Engine()
