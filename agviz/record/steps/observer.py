"""Observes what each optimizer holds, finds in ``.grad`` and leaves behind, step by step.

Note [A step must not be felt]
A step reads what Python has at hand: identities, versions, ``.grad`` or none, rates. Of four small
parameters on the CPU norms are taken, in the first steps and then ever more rarely. Whether
parameters are finite is looked at only where a loss is not, and at the end of the recording.
"""

from __future__ import annotations

import functools
import itertools
import logging
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from agviz.record.kinds import is_a
from agviz.record.steps.attributes import module_flags, repeated_modules
from agviz.record.steps.averages import Averages
from agviz.record.steps.finiteness import not_finite
from agviz.record.steps.kept import KeptGradients
from agviz.record.steps.sample import StepSample
from agviz.record.steps.seeds import Seeds
from agviz.record.steps.states import ModuleStates
from agviz.record.steps.unheld import Reached, UnheldLeaves
from agviz.record.steps.unstepped import Unstepped
from agviz.traces.step_facts import (
    HeldParameters,
    ModuleFlags,
    NotFinite,
    RepeatedModules,
    SeenOptimizer,
    StepFacts,
    UnheldLeaf,
)
from agviz_engine.errors import comes_from_outside
from agviz_engine.events import NO_GRAPH_TASK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from agviz.record.names import Names
    from agviz.record.provenance import Provenance
    from agviz.traces.module_states import StateFact
    from agviz.traces.rows import Frame
    from agviz.traces.seedings import SeedFact
    from agviz.traces.step_facts import StepRow

log = logging.getLogger("agviz")

_MOST_HELD_ROWS: Final = 20_000
"""Rows that state what one optimizer holds; what changes after that is not recorded."""
_MOST_LOOKS: Final = 8

_Facts: TypeAlias = "tuple[tuple[int, ...], tuple[bool, ...], tuple[bool, ...]]"
"""Of what an optimizer holds: identities, which require gradients, which had some at the step."""


class _Optimizer:
    """What is known of one of them."""

    def __init__(self, number: int, made: Callable[[], tuple[Frame, ...]] | None) -> None:
        self.number = number
        self.made = made
        self.sample = StepSample()
        self.kept = KeptGradients()
        self.unstepped = Unstepped()
        self.reported: _Facts | None = None
        self.names: list[str] = []
        self.identities: tuple[int, ...] = ()
        self.versions: list[int] = []
        """Of what it holds, after its last step."""
        self.step = -1
        """Number of that."""
        self.reached: set[int] = set()
        """Identities of what it holds to which passes have led since then."""
        self.without_grad = 0
        self.had_grad: tuple[bool, ...] = ()
        self.is_kept = False
        self.is_stepping = False
        """Whether a step of it was called, and has not returned."""
        self.passes = 0
        """That had begun when the step was called."""
        self.rows = 0
        self.thread = threading.get_ident()
        """Identity of the thread on which it stepped last, or was made or seen."""


class StepObserver:
    """Observes the optimizers of the process, from :meth:`start` on also where they are made.

    Args:
        names: where names of parameters come from.
        provenance: where stacks come from; None: nowhere.
    """

    def __init__(self, names: Names, provenance: Provenance | None) -> None:
        self._names = names
        self._provenance = provenance
        self._lock = threading.RLock()
        self._optimizers: weakref.WeakKeyDictionary[Any, _Optimizer] = weakref.WeakKeyDictionary()
        self._number = itertools.count().__next__
        self._unheld = UnheldLeaves(names.roots)
        self._averaged = Averages()
        self._states = ModuleStates()
        self._seeds = Seeds()
        self.has_stepped = False
        """Whether any optimizer has."""
        self._ever_held: set[int] = set()
        """Identities of what optimizers stepped, which may be gone when the recording ends."""
        self._holders: dict[int, _Optimizer] = {}
        """What holds a parameter, by its identity."""
        self._holder_count = 0
        """Number of optimizers from which that was made; -1: it has to be made anew."""
        self._passes = 0
        self._looks_at_end = False
        """Whether the end of a pass can still show something of its gradients."""
        self._looks = 0
        self._is_over = False
        self.is_paused = False
        """Whether steps follow passes that are not recorded: nothing is said of them."""
        self._unseen: Callable[..., Any] | None = None
        """Does what :meth:`_act` does where compiled code may call it; None: observes nothing."""
        self._own: Any = None
        self._ours: Any = None

    def start(self) -> None:
        """Note from now on where optimizers are made, and states of modules are loaded."""
        from torch.optim import Optimizer

        self._states.start()
        self._seeds.start()
        self._unseen = functools.partial(_unseen_act(), self)
        kind: Any = Optimizer
        own = getattr(kind, "_patch_step_function", None)
        if own is None:  # this torch makes optimizers in another way
            return

        # Not __init__ itself: its exceptions are the user's, and would show a frame of ours.
        @functools.wraps(own)
        def _patch_step_function(optimizer: Any) -> None:
            own(optimizer)
            self._guarded(self._made, optimizer)

        self._own, self._ours = own, _patch_step_function
        kind._patch_step_function = _patch_step_function

    def stop(self) -> None:
        """Leave torch as it was found, unless somebody has replaced it since."""
        self._states.stop()
        self._seeds.stop()
        if self._ours is None:
            return
        from torch.optim import Optimizer

        kind: Any = Optimizer
        if kind._patch_step_function is self._ours:
            kind._patch_step_function = self._own
        self._unseen = self._own = self._ours = None

    def called(self, optimizer: Any) -> None:
        """A step begins."""
        if not self.is_paused:
            self._guarded(self._called, optimizer)

    def stepped(self, optimizer: Any, number: int, graph_task: int) -> list[StepRow]:
        """A step has returned; what is to be written of it.

        Args:
            optimizer: which.
            number: of the step.
            graph_task: the last outermost one that had begun; -1: none.
        """
        self._states.steps += 1
        self._seeds.stepped(optimizer)
        return self._guarded(self._stepped, optimizer, number, graph_task) or []

    def stepped_unseen(self, optimizer: Any, number: int) -> None:
        """Note which step it was that wrote the parameters last, and no more.

        Args:
            optimizer: which stepped.
            number: of the step.
        """
        self._states.steps += 1
        self._seeds.stepped(optimizer)
        of = self._optimizers.get(optimizer)
        if of is not None and not self._is_over:
            held = _held(optimizer)
            of.is_stepping = False
            of.step, of.versions = number, [one._version for one in held]
            self._identify(of, held)
            self._ever_held.update(of.identities)
            of.reached.clear()
            of.sample.forget()

    def pass_begun(self) -> None:
        """An outermost backward pass begins."""
        with self._lock:
            self._passes += 1
        if self._optimizers:
            self._guarded(self._pass_begun)

    def pass_ended(self) -> None:
        """It has ended."""
        if self._looks_at_end:
            self._guarded(self._pass_ended)

    def reached(
        self, graph_task: int, leaves: Sequence[tuple[int, Tensor]], names: Sequence[str]
    ) -> list[StepRow]:
        """Follow the leaves to which a pass leads; what is to be written of them.

        Args:
            graph_task: whose pass; it writes ``.grad``.
            leaves: node and variable of each.
            names: by node; a single one is that of all. Empty: no module has it as a parameter.
        """
        return self._guarded(self._follow, graph_task, leaves, names) or []

    def look(self, graph_task: int = NO_GRAPH_TASK) -> list[StepRow]:
        """Look for parameters and buffers that are not finite; what is to be written.

        Args:
            graph_task: whose loss is not finite; -1: the recording ends.
        """
        return self._guarded(self._look, graph_task) or []

    def averages(self) -> list[str]:
        """Batch norms whose weight is averaged, and whose statistics are as they were made."""
        return self._guarded(self._averages) or []

    def states(self) -> list[StateFact]:
        """Loads and saves of states of modules that do not do what they seem to."""
        return [] if self._provenance is None else self._states.facts(self._provenance.files)

    def seedings(self) -> list[SeedFact]:
        """Seeds that were set more than once between steps of one optimizer."""
        return [] if self._provenance is None else self._seeds.facts(self._provenance.files)

    def _averages(self) -> list[str]:
        held = self._ever_held
        return self._averaged.look(self._names.roots, held) if self.has_stepped else []

    def _guarded(self, act: Callable[..., Any], *args: Any) -> Any:
        return (self._unseen or self._act)(act, *args)

    def _act(self, act: Callable[..., Any], *args: Any) -> Any:
        if self._is_over:
            return None
        try:
            with self._lock:
                return act(*args)
        except Exception as error:
            if comes_from_outside(error):
                raise
            self._is_over = True
            log.warning("what optimizers hold is no longer recorded (%r)", error)
            return None

    def _made(self, optimizer: Any) -> None:
        if optimizer not in self._optimizers:
            self._add(optimizer, None if self._provenance is None else self._provenance.here())

    def _of(self, optimizer: Any) -> _Optimizer:
        return self._optimizers.get(optimizer) or self._add(optimizer, None)

    def _add(self, optimizer: Any, made: Callable[[], tuple[Frame, ...]] | None) -> _Optimizer:
        found = self._optimizers[optimizer] = _Optimizer(self._number(), made)
        self._holder_count = -1
        return found

    def _called(self, optimizer: Any) -> None:
        of = self._of(optimizer)
        held = _held(optimizer)
        self._identify(of, held)
        of.is_stepping = True
        of.passes = self._passes
        self._find_gradients(of, held)
        of.is_kept = of.kept.is_kept
        of.sample.called(held, of.identities)

    def _identify(self, of: _Optimizer, held: Sequence[Tensor]) -> None:
        identities = tuple(map(id, held))
        if identities != of.identities:
            of.identities = identities
            self._holder_count = -1

    def _find_gradients(self, of: _Optimizer, held: Sequence[Tensor]) -> None:
        of.had_grad = tuple(one.grad is not None for one in held)
        of.without_grad = of.had_grad.count(False)

    def _stepped(self, optimizer: Any, number: int, graph_task: int) -> list[StepRow]:
        of = self._of(optimizer)
        if not of.is_stepping:  # the recording began meanwhile, or goes on
            return []
        of.is_stepping = False
        held = _held(optimizer)
        if len(held) != len(of.identities):  # the step has added a group
            self._identify(of, held)
            self._find_gradients(of, held)
        if of.passes != self._passes:  # a closure has called backward inside of the step
            self._find_gradients(of, held)
            of.is_kept = of.kept.is_kept
        rows: list[StepRow] = []
        if of.step < 0:
            stepped = None if self._provenance is None else self._provenance.here()
            name = type(optimizer).__name__
            rows.append(SeenOptimizer(graph_task, of.number, name, of.made, stepped))
        facts = of.identities, tuple(one.requires_grad for one in held), of.had_grad
        if facts != of.reported:
            rows += self._held_rows(of, held, facts, number, graph_task)
        rates = [_number(group.get("lr")) for group in optimizer.param_groups]
        known = [rate for rate in rates if rate is not None]
        decays = [_number(group.get("weight_decay")) for group in optimizer.param_groups]
        epsilons = [_number(group.get("eps")) for group in optimizer.param_groups]
        rows.append(
            StepFacts(
                graph_task,
                number,
                of.number,
                min(known, default=None),
                max(known, default=None),
                max((decay for decay in decays if decay is not None), default=None),
                min((eps for eps in epsilons if eps is not None), default=None),
                len(held),
                of.without_grad,
                len(of.reached),
                of.is_kept,
                of.sample.stepped(held, of.names),
            )
        )
        of.step, of.thread = number, threading.get_ident()
        of.versions = [one._version for one in held]
        of.reached.clear()
        of.kept.stepped(held)
        self.has_stepped = True
        self._averaged.stepped(self._names.roots, self._ever_held)
        return rows

    def _held_rows(
        self, of: _Optimizer, held: Sequence[Tensor], facts: _Facts, number: int, graph_task: int
    ) -> Iterator[StepRow]:
        """What the optimizer holds, which is not what was reported last."""
        is_new = of.reported is None or of.reported[0] != of.identities
        of.reported = facts
        if is_new:
            self._ever_held.update(of.identities)
            of.names = [self._names.trained(one) or "" for one in held]
        if flags := module_flags(self._names.roots()):
            yield ModuleFlags(graph_task, flags)
        if is_new and (containers := repeated_modules(self._names.roots())):
            yield RepeatedModules(graph_task, containers)
        if of.rows + len(held) > _MOST_HELD_ROWS:
            return
        of.rows += len(held)
        shapes = [str(list(one.shape)) for one in held]
        dtypes = [str(one.dtype).removeprefix("torch.") for one in held]
        columns = zip(of.names, shapes, dtypes, *facts[1:], strict=True)
        yield HeldParameters(graph_task, of.number, number, tuple(columns))

    def _pass_begun(self) -> None:
        looks = not self.has_stepped
        for optimizer, of in list(self._optimizers.items()):
            if gradients := self._gradients_of(of):
                gradients.pass_begun(_held(optimizer))
            looks |= of.kept.is_watching
        self._looks_at_end = looks  # at once: the end of a pass of another thread reads it

    def _pass_ended(self) -> None:
        for optimizer, of in list(self._optimizers.items()):
            if gradients := self._gradients_of(of):
                gradients.pass_ended(_held(optimizer))

    def _gradients_of(self, of: _Optimizer) -> KeptGradients | Unstepped | None:
        """What a pass of this thread can show of its gradients.

        To read a ``.grad`` that another thread writes at this moment may end the process.
        """
        if of.thread != threading.get_ident():
            return None
        if of.kept.is_watching:
            return of.kept
        return None if self.has_stepped else of.unstepped

    def _follow(
        self, graph_task: int, leaves: Sequence[tuple[int, Tensor]], names: Sequence[str]
    ) -> list[UnheldLeaf]:
        found: list[UnheldLeaf] = []
        holders = self._take_holders()
        for node, variable in leaves:
            holder = holders.get(id(variable))
            if holder is not None:
                holder.reached.add(id(variable))
            if holder is None or self._unheld.follows_any:
                name = names[node] if len(names) > 1 else names[0]
                leaf = Reached(graph_task, node, variable, name)
                found += self._unheld.reached(leaf, holders)
        return found

    def _take_holders(self) -> dict[int, _Optimizer]:
        if self._holder_count != len(self._optimizers):
            self._holders, self._holder_count = {}, len(self._optimizers)
            for optimizer, of in list(self._optimizers.items()):
                self._holders.update(dict.fromkeys(of.identities or map(id, _held(optimizer)), of))
                if not of.identities:  # before its first step, groups may be added to it
                    self._holder_count = -1
        return self._holders

    def _look(self, graph_task: int) -> list[StepRow]:
        self._looks += 1
        is_end = graph_task == NO_GRAPH_TASK
        if not self._passes or (self._looks > _MOST_LOOKS and not is_end):
            return []
        written: dict[int, tuple[int, int, int]] = {}
        for of in list(self._optimizers.values()):
            for identity, version in zip(of.identities, of.versions, strict=False):
                written[identity] = of.number, of.step, version
        rows: list[StepRow] = list(self._idle()) if is_end and not self.has_stepped else []
        found = not_finite(self._names.roots(), waits_for_devices=not is_end)
        for number, (name, tensor, is_buffer) in enumerate(found):
            optimizer, step, version = written.get(id(tensor), (-1, -1, -1))
            is_written = version == tensor._version
            facts = optimizer, step if is_written else -1
            rows.append(NotFinite(graph_task, number, name, is_buffer, *facts))
        return rows

    def _idle(self) -> Iterator[SeenOptimizer]:
        """What holds parameters whose gradients come and go, where no optimizer ever stepped."""
        for optimizer, of in list(self._optimizers.items()):
            is_own = of.thread == threading.get_ident()
            if is_own and of.unstepped.is_idle(_held(optimizer)):
                name = type(optimizer).__name__
                yield SeenOptimizer(NO_GRAPH_TASK, of.number, name, of.made, None)


@functools.cache
def _unseen_act() -> Callable[..., Any]:
    """Compiled code may call a step: Dynamo would compile what is done here, too."""
    from agviz_engine.backward_call import unseen_by_dynamo

    return unseen_by_dynamo(StepObserver._act)


def _held(optimizer: Any) -> list[Tensor]:
    groups = getattr(optimizer, "param_groups", ())  # there are none where its __init__ has raised
    return [one for group in groups for one in group["params"]]


def _number(value: object) -> float | None:
    """A rate as a number; None: it has none, or it lies on a device that would be waited for."""
    if type(value) is float:
        return value
    from torch import Tensor

    if is_a(value, Tensor):
        return value.item() if value.device.type == "cpu" and value.numel() == 1 else None
    return float(value) if is_a(value, int, float) else None
