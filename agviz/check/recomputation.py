"""Checkpoints: what the forward computed, and what is computed anew in backward."""

from __future__ import annotations

import random
import sys
import threading
import zlib
from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import torch
import torch.utils.checkpoint
from torch import Tensor

from agviz.check.checksums import checksum

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from agviz.check.checksums import Checksum

_MOST_CALLS: Final = 20_000
"""Torch functions of one run of a checkpoint that are remembered."""
_MOST_DIFFERENT: Final = 100
_PLAIN: Final = (int, float, str, bytes, type(None))
_SAMPLES: Final = 64
_ROUNDING: Final = 1e-3
_RANDOM: Final = (
    "dropout",
    "rand",
    "bernoulli",
    "normal_",
    "multinomial",
    "uniform",
    "exponential",
)


class _Output(NamedTuple):
    requires_grad: bool
    checksum: Checksum | None
    samples: tuple[float, ...]
    """Some of its elements."""


class CallInCheckpoint(NamedTuple):
    """A torch function that was called in a checkpoint."""

    name: str
    words: str
    captured: Any
    random_state: int
    """Checksum of the state that random numbers came from; 0 where it draws none."""
    outputs: tuple[_Output, ...]


class DifferentRun(NamedTuple):
    """The first call at which the second run of a checkpoint is another."""

    moment: int
    """When the first run ended."""
    before: CallInCheckpoint
    after: CallInCheckpoint
    called: Any
    """The stack of the call of the checkpoint."""
    draws_from: str
    """The module, but torch, from which the first run drew random numbers; empty: none was seen."""
    rebound: str
    """The variable around the function that is something else in the second run; empty: none."""


class _Repeated:
    """What a checkpoint runs: each run is noted, and the later ones are held against the first."""

    def __init__(self, function: Callable[..., Any], watch: Recomputations) -> None:
        self._function = function
        self._watch = watch
        self._first: list[CallInCheckpoint] | None = None
        self._moment = 0
        self._draws_from = ""
        self._called = watch.capture()
        self._around = _variables(function)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        calls: list[CallInCheckpoint] = []
        running = self._watch.running()
        running.append(calls)
        states = _states() if self._first is None else {}
        try:
            with self._watch.observed():
                return self._function(*args, **kwargs)
        finally:
            running.pop()
            if self._first is None:
                self._first, self._moment = calls, self._watch.moment()
                moved = (name for name, state in _states().items() if state != states[name])
                self._draws_from = next(moved, "")
            else:
                found = self._watch.first_other(self._first, calls)
                if found is not None:
                    now = _variables(self._function)
                    rebound = (name for name, it in self._around.items() if now.get(name) != it)
                    self._watch.add(
                        DifferentRun(
                            self._moment,
                            *found,
                            self._called,
                            self._draws_from,
                            next(rebound, ""),
                        )
                    )


def _variables(function: Any) -> dict[str, int]:
    """Identities of what the variables around a function hold, and the globals that it names.

    Numbers and texts are left out: they decide something.
    """
    if not isinstance(function, FunctionType):
        return {}
    code, cells = function.__code__, function.__closure__ or ()
    found = {
        name: cell.cell_contents
        for name, cell in zip(code.co_freevars, cells, strict=True)
        if cell != CellType()
    }
    known = function.__globals__
    found |= {name: known[name] for name in code.co_names if name in known}
    return {name: id(it) for name, it in found.items() if not isinstance(it, _PLAIN)}


def _states() -> dict[str, int]:
    """The states of the random numbers that a checkpoint does not restore, as checksums."""
    found = {"Python's random": hash(random.getstate())}
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is not None:
        _, keys, place, *_ = numpy.get_state()
        found["numpy.random"] = hash((keys.tobytes(), place))
    return found


class Recomputations:
    """Stands in the place of ``torch.utils.checkpoint.checkpoint`` from start to stop.

    Args:
        moment: gives the number of the moment.
        observed: a context in which torch functions are observed, in backward as well.
        capture: takes the stack.
    """

    def __init__(
        self,
        moment: Callable[[], int],
        observed: Callable[[], AbstractContextManager[None]],
        capture: Callable[[], Any],
    ) -> None:
        self.moment = moment
        self.observed = observed
        self.capture = capture
        self.compared = 0
        self.different: list[DifferentRun] = []
        self._here = threading.local()
        self._own: Any = None

    def start(self) -> None:
        """Have checkpoints noted that the program makes from now on."""
        module: Any = torch.utils.checkpoint
        self._own = own = module.checkpoint
        watch = self

        def checkpoint(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return own(function, *args, **kwargs)
            return own(_Repeated(function, watch), *args, **kwargs)

        module.checkpoint = checkpoint

    def stop(self) -> None:
        """Give torch its own function back."""
        if self._own is not None:
            torch.utils.checkpoint.checkpoint = self._own

    def running(self) -> list[list[CallInCheckpoint]]:
        """The checkpoints that this thread is in."""
        found: list[list[CallInCheckpoint]] = self._here.__dict__.setdefault("running", [])
        return found

    def called(
        self, name: str, words: str, captured: Any, state: int, results: Sequence[Tensor]
    ) -> None:
        """A torch function gave ``results`` in a checkpoint; none where it was cut off."""
        outputs = tuple(
            _Output(each.requires_grad, checksum(each), _samples(each)) for each in results
        )
        call = CallInCheckpoint(name, words, captured, state, outputs)
        for calls in self.running():
            if len(calls) < _MOST_CALLS:
                calls.append(call)

    def first_other(
        self, first: list[CallInCheckpoint], then: list[CallInCheckpoint]
    ) -> tuple[CallInCheckpoint, CallInCheckpoint] | None:
        """The first call of two runs that is another; the second run may end early."""
        if not first or not then:
            return None
        self.compared += 1
        if _is_contained(first, then):
            return None
        pairs = zip(first, then, strict=False)
        return next(((one, two) for one, two in pairs if not _is_same(one, two)), None)

    def add(self, run: DifferentRun) -> None:
        """Keep it, unless there are many."""
        if len(self.different) < _MOST_DIFFERENT:
            self.different.append(run)


def _is_contained(first: list[CallInCheckpoint], then: list[CallInCheckpoint]) -> bool:
    """Whether what a gradient flows through or is drawn in the second run is in the first in order.

    What else either of them computes makes no difference, as the table that the first one caches.
    """
    left = iter(first)
    own = [  # what was cut off has no results
        call
        for call in then
        if not call.outputs or call.random_state or any(each.requires_grad for each in call.outputs)
    ]
    return bool(own) and all(any(_is_same(one, two) for one in left) for two in own)


def _is_same(before: CallInCheckpoint, after: CallInCheckpoint) -> bool:
    """Whether both do the same. Of results, those count that a gradient flows through or are drawn.

    Where nothing is known of results, as of what was cut off, the state that is drawn from counts.
    """
    if before[:2] != after[:2]:
        return False
    is_known = after.outputs and all(each.checksum is not None for each in after.outputs)
    if not is_known and before.random_state != after.random_state:
        return False
    return all(
        one.checksum == two.checksum or _is_rounding(one.samples, two.samples)
        for one, two in zip(before.outputs, after.outputs, strict=False)
        if two.requires_grad or after.random_state
    )


def random_state(name: str, tensor: Tensor | None) -> int:
    """Checksum of the state from which a torch function of this name draws; 0: it draws none."""
    if not is_random(name):
        return 0
    if tensor is not None and tensor.is_cuda:
        return zlib.crc32(torch.cuda.get_rng_state(tensor.device).numpy().data)
    return zlib.crc32(torch.get_rng_state().numpy().data)


def is_random(name: str) -> bool:
    """Whether a torch function of this name draws random numbers."""
    return any(word in name for word in _RANDOM)


def _is_rounding(some: Sequence[float], others: Sequence[float]) -> bool:
    """Whether elements differ by no more than another order of additions explains."""
    if len(some) != len(others):
        return False
    size = max(map(abs, [*some, *others]), default=0.0)
    return all(abs(one - two) <= _ROUNDING * size for one, two in zip(some, others, strict=True))


def _samples(tensor: Tensor) -> tuple[float, ...]:
    if checksum(tensor) is None or tensor.is_complex() or not tensor.numel():
        return ()
    with torch.no_grad():
        flat = tensor.detach().reshape(-1)
        return tuple(flat[:: max(1, flat.numel() // _SAMPLES)].double().tolist())


class Modes:
    """When modules were put into training or evaluation."""

    def __init__(self, moment: Callable[[], int], capture: Callable[[], Any]) -> None:
        self._moment = moment
        self._capture = capture
        self._calls: list[tuple[int, Any]] = []
        self._own: Any = None

    def start(self) -> None:
        """Note each call of ``train`` and ``eval`` from now on."""
        self._own = own = torch.nn.Module.train
        watch = self

        def train(module: torch.nn.Module, mode: bool = True) -> torch.nn.Module:
            if not torch.compiler.is_compiling() and module.training != mode:
                watch.noted()
            return own(module, mode)

        cast("Any", torch.nn.Module).train = train

    def stop(self) -> None:
        """Give torch its own method back."""
        if self._own is not None:
            cast("Any", torch.nn.Module).train = self._own

    def noted(self) -> None:
        """A module changes its mode."""
        self._calls.append((self._moment(), self._capture()))
        del self._calls[: -10 * _MOST_DIFFERENT]

    def first_after(self, moment: int) -> Any:
        """The stack of the first change after a moment; None: there was none."""
        return next((captured for when, captured in self._calls if when >= moment), None)
