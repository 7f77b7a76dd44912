"""Seeds that the program sets again and again while it trains, so that the same numbers are drawn.

Note [The same numbers again]
That a seed is set is noted by its place and its value. It counts where torch's generators had drawn
something since that was last so, where an optimizer stepped before it and steps after it (else each
of several trainings may begin alike, on purpose), and where the generator still has that seed when
it steps: ``fork_rng`` and ``set_rng_state`` take it back.
"""

from __future__ import annotations

import functools
import logging
import sys
import weakref
from typing import TYPE_CHECKING, Any, Final

from agviz.record.capturing import callers, line_of
from agviz.traces.seedings import SeedFact
from agviz_engine.errors import comes_from_outside

if TYPE_CHECKING:
    from types import CodeType, FrameType

    from torch import Tensor

    from agviz.record.files import Files

log = logging.getLogger("agviz")

_OTHERS: Final = frozenset({"agviz", "agviz_engine", "torch"})
"""Packages that set seeds for a while, for purposes of their own."""
_DYNAMO: Final = ("torch._compile", "torch._dynamo")
"""Modules that run what they keep out of compiled code."""
_MOST: Final = 64
"""Seeds that are told apart, each with its place."""


class _Seeding:
    """One value that one place sets."""

    def __init__(self, seed: int, places: tuple[tuple[CodeType, int], ...]) -> None:
        self.seed = seed
        self.places = places
        self.count = 0
        """Times that it was set between steps of one optimizer, with something drawn before."""
        self.steps = 0
        """Of optimizers, when it was set first."""
        self.last = 0
        """The same of the last time that counts."""
        self.is_drawn = False
        """Whether something was drawn since it was set last."""
        self.state: tuple[Tensor, tuple[int, ...]] | None = None
        """Of the generators, right after it was set."""


class Seeds:
    """Observes ``torch.manual_seed``. Note [The same numbers again]."""

    def __init__(self) -> None:
        self._seedings: dict[tuple[tuple[CodeType, int], int], _Seeding] = {}
        self._pending: _Seeding | None = None
        """What was set last, where no optimizer stepped since."""
        self._stepped: weakref.WeakSet[Any] = weakref.WeakSet()
        self._steps = 0
        self._replaced: list[tuple[Any, Any, Any]] = []

    def start(self) -> None:
        """Begin to observe. Imports torch."""
        import torch

        if self._replaced:
            return
        modules: list[Any] = [torch, torch.random]
        owns = [module.manual_seed for module in modules]
        # Both are one and the same until Dynamo is imported, which looks at that.
        ours = {own: self._observed(own) for own in owns}
        for module, own in zip(modules, owns, strict=True):
            module.manual_seed = ours[own]
            self._replaced.append((module, own, ours[own]))

    def stop(self) -> None:
        """Put back what was there, unless somebody has replaced it since."""
        for module, own, ours in self._replaced:
            if module.manual_seed is ours:
                module.manual_seed = own
        self._replaced.clear()

    def _observed(self, own: Any) -> Any:
        @functools.wraps(own)
        def manual_seed(seed: Any) -> Any:
            if not self._replaced:  # Dynamo has kept it
                return own(seed)
            caller: FrameType | None = sys._getframe(1)
            while caller is not None and _module(caller).startswith(_DYNAMO):
                caller = caller.f_back
            if caller is None or _module(caller).partition(".")[0] in _OTHERS:
                return own(seed)
            self._guarded(self._before)
            generator = own(seed)
            self._guarded(self._seeded, seed, callers(caller))
            return generator

        manual_seed._torchdynamo_disable = True  # type: ignore[attr-defined]
        return manual_seed

    def stepped(self, optimizer: Any) -> None:
        """A step of an optimizer has returned."""
        self._steps += 1
        if self._pending is not None or optimizer not in self._stepped:
            self._guarded(self._note_step, optimizer)

    def facts(self, files: Files) -> list[SeedFact]:
        """What was set more than once while something was trained.

        Args:
            files: gives files the names that a reader knows them by.
        """
        found = []
        for each in self._seedings.values():
            frames = [
                files.frame(code.co_filename, line_of(code, instruction), code.co_name)
                for code, instruction in each.places
            ]
            lines = [(one.file, one.line, one.function) for one in frames if not one.hidden]
            if each.count > 1 and lines:
                found.append(SeedFact(each.seed, each.count, each.last - each.steps, lines))
        return found

    def _guarded(self, act: Any, *args: Any) -> None:
        try:
            act(*args)
        except Exception as error:
            if comes_from_outside(error):
                raise
            log.debug("a seed was not looked at (%r)", error)

    def _before(self) -> None:
        """Whether something was drawn since each seed was set, before another one is."""
        state = _state()
        for each in self._seedings.values():
            if each.state is not None and not each.is_drawn:
                each.is_drawn = not _are_equal(each.state, state)

    def _seeded(self, seed: Any, places: tuple[tuple[CodeType, int], ...]) -> None:
        key = places[0], int(seed)
        known = self._seedings.get(key)
        if known is None:
            if len(self._seedings) >= _MOST:
                self._seedings.pop(next(iter(self._seedings)))
            known = self._seedings[key] = _Seeding(int(seed), places)
            known.steps = self._steps
        self._pending = known
        known.state = _state()

    def _note_step(self, optimizer: Any) -> None:
        import torch

        pending, self._pending = self._pending, None
        is_known = optimizer in self._stepped
        self._stepped.add(optimizer)
        if pending is None or torch.default_generator.initial_seed() != pending.seed:
            return
        if is_known and pending.is_drawn:
            pending.count += 1
            pending.last = self._steps - 1
        pending.is_drawn = False


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _state() -> tuple[Tensor, tuple[int, ...]]:
    """Of the generators of the CPU, and of the GPUs where they are in use."""
    import torch

    on_gpus: tuple[int, ...] = ()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        on_gpus = tuple(each.get_offset() for each in torch.cuda.default_generators)
    return torch.default_generator.get_state(), on_gpus


def _are_equal(one: tuple[Tensor, tuple[int, ...]], other: tuple[Tensor, tuple[int, ...]]) -> bool:
    import torch

    from agviz.measure.health import unseen

    with unseen():
        return one[1] == other[1] and torch.equal(one[0], other[0])
