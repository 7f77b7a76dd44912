"""The steps of a run, read once and put beside its backward passes."""

from __future__ import annotations

import ast
import itertools
from bisect import bisect_left
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.code_search import nodes_of, running_functions, user_files
from agviz.analysis.loss_scale import loss_scale
from agviz.analysis.steps.given_names import GivenNames

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agviz.traces.graph_tasks import GraphTasks
    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame, GraphTaskRow, LeafNorm, OptimizerStepRow
    from agviz.traces.step_facts import (
        HeldParameterRow,
        OptimizerRow,
        StepFactRow,
        StepSampleRow,
        UnheldRow,
    )


_FEW: Final = 8
"""Passes before a step that are looked at."""
_LATE: Final = 8
"""Passes that lead to what may have come late."""
TORCHS: Final = frozenset(
    {"ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "LBFGS", "Muon"}
    | {"NAdam", "RAdam", "RMSprop", "Rprop", "SGD", "SparseAdam"}
)
"""Optimizers of torch: they move nothing that has no gradient."""


class TakenStep(NamedTuple):
    """One step, with what its optimizer held and found."""

    graph_task: int
    """The last outermost one that had begun; -1: none."""
    fact: StepFactRow
    sample: Sequence[StepSampleRow]

    @property
    def number(self) -> int:
        """Among all steps, in order of time."""
        return self.fact.step


class Stepping(NamedTuple):
    """One optimizer and its steps, at least one."""

    optimizer: OptimizerRow
    steps: list[TakenStep]
    held: list[HeldParameterRow]
    """What it held when that was told last."""
    is_told_once: bool
    """Whether that was so, with what requires and has a gradient, at all of its steps."""
    trained: frozenset[str] = frozenset()
    """Named ones that required or had a gradient at some step."""

    @property
    def name(self) -> str:
        """Of its class."""
        return self.optimizer.name

    @property
    def is_torchs(self) -> bool:
        """Whether what it does is known by its class; one of the program's may do anything."""
        return self.name in TORCHS

    @property
    def is_normalising(self) -> bool:
        """Whether it divides gradients by averages of their size, as far as its class tells."""
        return self.is_torchs and self.name not in {"ASGD", "LBFGS", "SGD"}

    @property
    def moves(self) -> bool:
        """Whether a measured step changed something that it holds."""
        return any(row.change for taken in self.steps for row in taken.sample)

    @property
    def is_moved_beside(self) -> bool:
        """Whether something but its steps was seen to change what it holds."""
        return any(row.net for taken in self.steps for row in taken.sample)

    @property
    def stepped(self) -> Frame | None:
        """The line of the user's code that called its first step."""
        return next((frame for frame in reversed(self.optimizer.stepped) if not frame.hidden), None)

    @property
    def made(self) -> Frame | None:
        """The line that made it, else the one that called its first step."""
        return self.optimizer.frame

    @property
    def at(self) -> str:
        """Which line made it, in brackets; empty: it is not known."""
        return "" if self.made is None else f" (line {self.made.line})"


class RunSteps:
    """All of them in a trace.

    Args:
        trace: it has recorded everything (:attr:`agviz.traces.rows.Meta.partial` is False).

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    @cached_property
    def rows(self) -> dict[int, int]:
        """By number of a step: the last outermost graph task that had begun; -1: none."""
        return self.trace.passes_before_steps()

    @cached_property
    def optimizers(self) -> list[Stepping]:
        """Each that has stepped."""
        samples: dict[int, list[StepSampleRow]] = {}
        for row in self.trace.step_samples():
            samples.setdefault(row.step, []).append(row)
        taken: dict[int, list[TakenStep]] = {}
        for fact in self.trace.step_facts():
            if fact.step in self.rows:
                one = TakenStep(self.rows[fact.step], fact, samples.get(fact.step, ()))
                taken.setdefault(fact.optimizer, []).append(one)
        held: dict[int, dict[int, list[HeldParameterRow]]] = {}
        for parameter in self.trace.held_parameters():
            held.setdefault(parameter.optimizer, {}).setdefault(parameter.since, []).append(
                parameter
            )
        return [
            Stepping(
                optimizer,
                taken[optimizer.number],
                told[max(told)] if (told := held.get(optimizer.number)) else [],
                len(held.get(optimizer.number, ())) == 1,
                frozenset(
                    row.name
                    for rows in held.get(optimizer.number, {}).values()
                    for row in rows
                    if row.requires_grad or row.had_grad
                ),
            )
            for optimizer in self.trace.optimizers()
            if optimizer.number in taken
        ]

    @cached_property
    def idle(self) -> list[OptimizerRow]:
        """Those that hold what gets gradients, and never step."""
        if self.rows or self.trace.step_facts():
            return []
        return list(self.trace.optimizers())

    @cached_property
    def passes(self) -> GraphTasks:
        """The outermost calls of backward that write ``.grad``, in order."""
        return self.trace.graph_tasks.outermost.accumulating

    @cached_property
    def taken_at(self) -> Mapping[int, OptimizerStepRow]:
        """All steps of the run, by their numbers."""
        return {step.number: step for step in self.trace.optimizer_steps()}

    @cached_property
    def unheld(self) -> list[UnheldRow]:
        """Leaves that no optimizer holds, that nobody moves, and that passes keep leading to."""
        if not self.optimizers or not self.passes:
            return []
        first = min(each.steps[0].graph_task for each in self.optimizers)
        after = len(self.passes.after(first))
        rows = [row for row in self.trace.unheld_leaves() if not row.is_moved]
        # What came late, as a head that was replaced, has had few passes; the last lead to it.
        rows = [row for row in rows if row.passes >= min(after / 4, _LATE if row.name else after)]
        return [row for row in rows if not row.name or row.name in self._reached_before_steps]

    @cached_property
    def _reached_before_steps(self) -> set[str]:
        """What the last passes led to after which an optimizer stepped.

        What gets gradients at other times only is looked at: to score layers, to attack inputs.
        """
        tasks = {
            task
            for each in self.optimizers
            for last, taken in itertools.pairwise([None, *each.steps][-_FEW:])
            if taken is not None
            for task in self.passes_between(last, taken).ids[-_FEW:]
        }
        rows = (row for task in tasks for row in self.trace.parameters(task))
        return {row.name for row in rows if row.node is not None}

    @cached_property
    def losses(self) -> Mapping[int, float]:
        """The loss of each pass that has one, by graph task."""
        return self.trace.losses()

    @cached_property
    def first_wrong(self) -> int | None:
        """The first pass whose loss or gradients are not finite; None: none is."""
        wrong = [*self.trace.nonfinite_roots()[:1], *self.trace.nonfinite_results()[:1]]
        return min(wrong, default=None)

    @cached_property
    def running(self) -> set[str]:
        """Names of functions that ran, or that those call; to find them, all files are read."""
        return running_functions(self.trace)

    @cached_property
    def given_names(self) -> GivenNames:
        """What the text of the program gives to its names."""
        return GivenNames(self.trace)

    def statements(self) -> Iterator[tuple[str, str, ast.stmt]]:
        """All statements of functions that ran: file, function, statement."""
        for file in user_files(self.trace):
            for function, node in nodes_of(self.trace, file):
                if isinstance(node, ast.stmt) and function in self.running:
                    yield file, function, node

    def passes_between(self, last: TakenStep | None, taken: TakenStep) -> GraphTasks:
        """The passes before a step, after the last one of its optimizer; None: it is the first."""
        ids, after = self.passes.ids, -1 if last is None else last.graph_task
        return self.passes[bisect_left(ids, after + 1) : bisect_left(ids, taken.graph_task + 1)]

    def pass_before(self, taken: TakenStep, last: TakenStep | None) -> GraphTaskRow | None:
        """The only pass before a step, after the last one, that reaches what is measured there.

        None: there is none, or there are several.

        Args:
            taken: the step.
            last: the step before; None: it is the first.
        """
        between: Sequence[GraphTaskRow] = self.passes_between(last, taken)
        if 1 < len(between) <= _FEW:
            names = {row.parameter for row in taken.sample if row.parameter}
            between = [task for task in between if names & self.arrived(task).keys()]
        return between[0] if len(between) == 1 else None

    def arrived(self, task: GraphTaskRow) -> dict[str, float]:
        """The norms of the gradients of named parameters after a pass."""
        return {row.parameter: row.norm for row in self.norms(task)}

    def norms(self, task: GraphTaskRow) -> list[LeafNorm]:
        """The norms of the gradients of all leaves after a pass."""
        rows = self.trace.leaf_norms(task.begin_seq, task.last_seq)
        return [row for row in rows if row.graph_task == task.id]

    def adds(self, each: Stepping, graph_task: int) -> bool:
        """Whether a pass adds to gradients of what an optimizer holds."""
        held = {row.name for row in each.held if row.name}
        rows = self.trace.parameters(graph_task)
        return any(row.had_grad and row.node is not None and row.name in held for row in rows)

    def scale(self, task: GraphTaskRow) -> float:
        """By what a GradScaler had multiplied the loss of a pass; 1: by nothing that is known."""
        found = loss_scale(self.trace, task.id)
        return found if found and found >= 2 else 1.0
