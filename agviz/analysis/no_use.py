"""Parameters that never get a gradient of use in a run, though an optimizer holds them.

One pass with a gradient of zeros, or without one, is no fault: a mask, a warm-up, a factor that
starts at zero. So it has to be so in the first pass and in each of the last ones
(:func:`~agviz.analysis.why.why`), with steps of the optimizer between, and for a reason that no
program means.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from agviz.analysis.causes import Cause
from agviz.analysis.gradients import Gradients
from agviz.analysis.untrained import LAST_PASSES
from agviz.analysis.why import LARGER, OF_MORE, why
from agviz.traces.rows import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agviz.analysis.gradients import GradientRow, Group
    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame

_LEAST_PASSES: Final = 4
_LEAST_STEPS: Final = 2
_MOST_NODES: Final = 20_000
"""A larger pass is not read."""
_CUT: Final = frozenset(
    {
        *(Cause.CHECKPOINT, Cause.INTEGER, Cause.LEFT_TORCH, Cause.NEW_TENSOR),
        *(Cause.RETURNED_NONE, Cause.SAMPLED),
    }
)
"""Causes of no gradient at all that nobody writes to stop one, as ``detach`` and ``no_grad`` do."""
_MAY_BE_MEANT: Final = frozenset(
    {
        *(Cause.DETACH, Cause.DATA, Cause.NO_GRAD, Cause.INFERENCE_MODE, Cause.NOT_IN_LOSS),
        *(Cause.NOT_REACHED, Cause.UNSEEN, Cause.UNUSED),
    }
)
"""Where an optimizer holds the parameters, a program may mean that they get none, or not."""
_OF_ZEROS: Final = frozenset({Cause.DEAD_ACTIVATION, Cause.FLAT, Cause.UNDERFLOW, Cause.VANISHED})
"""Causes that last until the program is changed. A term weighted by zero may be meant, and so may
a mask, and a hook."""
_CANCELLED: Final = frozenset({Cause.CANCELLED, Cause.FAINT_MEETING})
_PRODUCTS: Final = ("Mm", "Addmm", "Bmm", "Baddbmm", "Convolution")
"""Nodes of products with matrices, of which one that is zeros only is no weight of a loss."""
_UNKNOWN_ZEROS: Final = frozenset({Cause.OVERWRITTEN, Cause.UNKNOWN})
_BETWEEN_STEPS: Final = "weight_hh"
"""In the names of what a recurrence multiplies its state by, as torch names it."""
_LEAST_ZERO_PASSES: Final = 8
"""With zeros in each of those that are looked at, where a program may mean them."""
_FACTOR: Final = Cause.ZERO_FACTOR
"""It lasts where several factors are zero, and each leaves the others without a gradient."""
_REMEDIES: Final = {
    Cause.NOT_REACHED: "Record with --check-forward (check_forward=True) to learn whether a line"
    " cuts them off, or the forward does not use them.",
    Cause.SHIFT: "A constant that is added to all that is normalised cancels. Nothing else is"
    " trained: train what is behind that, or leave it out.",
}
_SHARE_FAINT: Final = 0.25
"""Of all parameters, that have to have next to nothing, where none is zero."""
_LEARNS: Final = 0.5
"""Of the first loss: where the last one is less, what gradients there are suffice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoUse:
    """No gradients, zeros, or next to nothing, throughout a run, and why."""

    graph_task: int
    """The last pass that was looked at."""
    first: int
    """The first pass."""
    group: Group
    """Parameters of which the same is to be said."""
    of: int
    """Parameters that require a gradient."""
    is_from_first: bool = True
    """Whether it was so in the first pass; else they had gradients in that one."""
    is_meant: bool = False
    """Whether a program may mean it, though a cause is known."""

    @property
    def frame(self) -> Frame | None:
        """The line that takes the gradient."""
        return self.group.rows[0].frame

    @property
    def is_known(self) -> bool:
        """Whether no program means it; else a parameter may be there to be used at another time."""
        return not self.is_meant and self.group.rows[0].cause not in _MAY_BE_MEANT

    @property
    def is_cause(self) -> bool:
        """Whether an activation that is shut follows from it, or is all that is meant.

        Weights start too small, or the activation is what the model puts out.
        """
        return self.group.rows[0].advice == LARGER or not self.is_from_first

    @property
    def heading(self) -> str:
        """Which parameters, and why."""
        return self.group.heading_among(self.of)

    @property
    def paragraph(self) -> str:
        """Since when, and what to do."""
        return " ".join(filter(None, [self._since, self._remedy]))

    @property
    def _remedy(self) -> str:
        row = self.group.rows[0]
        if row.cause in _REMEDIES:
            return _REMEDIES[row.cause]
        if not self.is_from_first:
            return (
                "All learn through it, so it is what the model puts out: an activation behind the"
                " last layer can't give what lies beyond its range, as numbers below 0 behind a"
                " ReLU. Leave it out there, unless a step was too large."
            )
        if row.cause is Cause.UNKNOWN and all(
            _BETWEEN_STEPS in a.parameter for a in self.group.rows
        ):
            return (
                "That is what a recurrence multiplies its state by, which is zero at the first"
                " step: nothing of a later step reaches the loss, or every sequence has one step"
                " only. Look at which outputs are taken (output[:, -1] and h_n are of the last"
                " step), and at batch_first."
            )
        if self.is_meant and row.cause in {_FACTOR, Cause.MASKED}:
            what = "the other factor" if row.cause is _FACTOR else "the mask"
            return (
                f"Look at what computes {what}, as a division of integers or a draw that is always"
                " 0. If that is meant, leave them out of the optimizer."
            )
        if row.cause is _FACTOR and row.advice != OF_MORE:
            return (
                "They are zero themselves, so that each leaves the others no gradient: initialise"
                " one factor of each product otherwise."
            )
        otherwise = "" if self.is_known else "If that is meant, leave them out of the optimizer."
        return " ".join(filter(None, [row.remedy, otherwise]))

    @property
    def _since(self) -> str:
        if not self.is_from_first:
            return (
                f"They had gradients in backward pass {self.first}, and zeros in each of the last"
                f" {LAST_PASSES}: nothing learns any more."
            )
        last = f"the last {LAST_PASSES}" if self.graph_task - self.first > LAST_PASSES else "all"
        return (
            f"An optimizer holds {'them' if len(self.group.rows) > 1 else 'it'}, and it was so in"
            f" backward pass {self.first} and in {last} after it."
        )

    def details(self) -> Iterator[str]:
        """What the answer rests on, line by line."""
        for row in self.group.rows:
            yield row.sentence

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "kind": "no_use",
            "graph_task": self.graph_task,
            "first": self.first,
            "cause": str(self.group.rows[0].cause),
            "parameters": [row.parameter for row in self.group.rows],
        }


def no_use(trace: Trace) -> NoUse | None:
    """The parameters of a run whose gradients never were of use; None: there are none, or unknown.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    passes = trace.graph_tasks.outermost.accumulating
    if len(passes) < _LEAST_PASSES or max(passes.nodes) > _MOST_NODES:
        return None
    first, last = passes[0].id, passes[-1].id
    is_left_out = any(each.first < first for each in trace.left_out)
    if is_left_out or trace.optimizer_steps_before(first):
        return None  # what came before is not known
    # A program may train something else first, or put adapters into its model: what counts is the
    # loop of the last pass, from where the parameters are all there.
    loop, every = visible(trace.call_site(last)), [task.id for task in passes]
    norms = {row.name: row.norm for row in trace.parameters(last)}
    begins = bisect_left(
        every, True, key=lambda task: norms.keys() <= {row.name for row in trace.parameters(task)}
    )
    first = next(task for task in every[begins:] if visible(trace.call_site(task)) == loop)
    steps = trace.optimizer_steps_before(last) - trace.optimizer_steps_before(first)
    if steps < _LEAST_STEPS:
        return None
    stepping = _stepping(trace, every)
    rows = [row for row in trace.held_parameters() if row.name and row.optimizer in stepping]
    held = {row.name for row in rows}
    # Of a head that few batches need, the first pass and the last ones may know nothing.
    now_and_then = {row.name for row in rows if row.had_grad}
    began = {row.parameter: row for row in why(trace, graph_task=first)}
    answer = why(trace)
    lasting = [
        row
        for row in answer
        if row.parameter in held
        and row.parameter in began
        and row.gradient == began[row.parameter].gradient
        and row.cause == began[row.parameter].cause
    ]
    none = [row for row in lasting if row.gradient == "none" and row.parameter not in now_and_then]
    cut = [row for row in none if row.cause in _CUT]
    unknown = [row for row in none if row.cause in _MAY_BE_MEANT]
    zeros = [
        row
        for row in lasting
        if row.gradient == "zero"
        and (
            row.cause in _OF_ZEROS
            or row.advice == OF_MORE
            or (row.cause is _FACTOR and norms.get(row.parameter) == 0)
        )
    ]
    if sum(row.cause is _FACTOR for row in zeros) == 1:
        zeros = [row for row in zeros if row.cause is not _FACTOR]
    if not zeros:
        matrices = {row.name for row in rows if len(row.shape) > 1}
        zeros = _cancelled(answer.trained, lasting, matrices)
    faint = [row for row in lasting if row.gradient == "faint" and row.cause is Cause.FAINT]
    if len(faint) < _SHARE_FAINT * len(answer.trained) or _is_learning(trace, first, last):
        faint = []
    # Where weights start too small, what a unit gets is its bias alone, and it may die of that.
    weak = [
        began[row.parameter]
        for row in answer
        if row.gradient in {"zero", "faint"}
        and row.parameter in held
        and began.get(row.parameter, row).advice == LARGER
    ]
    if len(weak) < _SHARE_FAINT * len(answer.trained) or _is_learning(trace, first, last):
        weak = []
    meant = _zeros_that_may_be_meant(trace, answer.trained, lasting, norms, last - first)
    known = cut or zeros or weak or faint or unknown
    groups = Gradients(known or meant).groups()
    is_from_first = bool(groups)
    if not groups and _is_dead_since(trace, answer.trained, began, held, first, last):
        groups = Gradients(answer.trained).groups()
    if not groups:
        return None
    return NoUse(
        graph_task=last,
        first=first,
        group=max(groups, key=lambda group: len(group.rows)),
        of=len(answer.trained),
        is_from_first=is_from_first,
        is_meant=not known and bool(meant),
    )


def _zeros_that_may_be_meant(
    trace: Trace,
    trained: Sequence[GradientRow],
    lasting: Sequence[GradientRow],
    norms: Mapping[str, float | None],
    passes: int,
) -> list[GradientRow]:
    """Those whose gradients a mask or a matrix of zeros takes, or that cancel with their module's.

    A number that weighs a term of the loss says nothing: it may be a schedule's. Where the gradient
    of all, or of weights, is zero, and the reason is not known, that is all that is known.
    """
    if passes < _LEAST_ZERO_PASSES:
        return []
    taken = [
        row
        for row in lasting
        if row.gradient == "zero"
        and (
            row.cause is Cause.MASKED
            or (row.cause is _FACTOR and norms.get(row.parameter) != 0 and _is_of_many(trace, row))
        )
    ]
    unknown = [row for row in lasting if row.gradient == "zero" and row.cause in _UNKNOWN_ZEROS]
    if unknown == list(trained) or any(len(row.shape or ()) > 1 for row in unknown):
        return unknown
    cancelled = [row for row in lasting if row.cause in _CANCELLED]
    others = {_owner(row) for row in trained if row not in cancelled}
    weighty = {_owner(row) for row in cancelled if len(row.shape or ()) > 1}
    return taken + [row for row in cancelled if _owner(row) in weighty - others]


def _owner(row: GradientRow) -> str:
    return row.parameter.rpartition(".")[0]


def _is_of_many(trace: Trace, row: GradientRow) -> bool:
    """Whether zeros are a factor of a product of matrices, or of several numbers, as of a layer."""
    if row.node_name.startswith(_PRODUCTS):
        return True
    if row.node is None or row.graph_task is None:
        return False
    shape = next(iter(trace.node(row.graph_task, row.node).input_shapes or ()), ())
    return len(shape) > 1 and shape[0] > 1


def _cancelled(
    trained: Sequence[GradientRow], lasting: Sequence[GradientRow], matrices: set[str]
) -> list[GradientRow]:
    """Those whose gradients cancel in pass after pass: all, or all of a module that has weights.

    Of single parameters that may be chance, or what a normalisation behind a bias makes of it.
    """
    every = [row for row in lasting if row.cause in _CANCELLED or row.cause is Cause.SHIFT]
    if every == list(trained):
        return every
    rows = [row for row in every if row.cause in _CANCELLED]
    others = {_module(row) for row in trained if row not in rows}
    weighty = {_module(row) for row in rows if row.parameter in matrices}
    return [row for row in rows if _module(row) in weighty - others]


def _module(row: GradientRow) -> str:
    return row.parameter.partition(".")[0]


def _stepping(trace: Trace, passes: Sequence[int]) -> set[int]:
    """The optimizers that still step, as often as they did: others are of a training before."""
    before = trace.passes_before_steps()
    places: dict[int, list[int]] = {}
    for fact in trace.step_facts():
        if fact.step in before:
            behind = bisect_right(passes, before[fact.step])
            places.setdefault(fact.optimizer, []).append(behind)
    longest = {
        number: max((b - a for a, b in pairwise(steps)), default=0)
        for number, steps in places.items()
    }
    return {
        number
        for number, steps in places.items()
        if len(passes) - steps[-1] <= max(LAST_PASSES, 2 * longest[number])
    }


def _is_dead_since(
    trace: Trace,
    rows: Sequence[GradientRow],
    began: Mapping[str, GradientRow],
    held: set[str],
    first: int,
    last: int,
) -> bool:
    """Whether one dead activation, open at first, is all that any parameter learns through.

    Of a loss that came down, it may be the end of what was to be learnt, as of a hinge.
    """
    losses = trace.losses()
    return (
        last - first > LAST_PASSES
        and {first, last} <= losses.keys()
        and not _is_learning(trace, first, last)
        and len({(row.graph_task, row.node) for row in rows}) == 1
        and all(row.cause is Cause.DEAD_ACTIVATION and row.parameter in held for row in rows)
        and all(row.parameter in began and began[row.parameter].is_there for row in rows)
    )


def _is_learning(trace: Trace, first: int, last: int) -> bool:
    """Whether the loss came down to half."""
    losses = trace.losses()
    began, ended = losses.get(first), losses.get(last)
    return began is not None and ended is not None and ended < _LEARNS * began
