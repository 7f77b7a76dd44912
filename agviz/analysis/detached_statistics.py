"""Normalisations whose mean and deviation were computed without a graph.

Note [Two terms]
``(x - mean) / std`` with both of ``x`` itself has three terms in its derivative. Where mean and
deviation are made under ``no_grad``, only the first is left: gradients try to shift and to scale
``x``, which changes nothing of what comes out. A layer's output that goes on into others is meant
here, with one mean for each feature or sample. One mean over everything, and what is added up right
away, only scale a loss: with its whole derivative such a loss would be constant. Statistics that
were averaged over steps are no function of ``x`` alone, and those that are detached one by one are
meant so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.analysis.lineage import last_name
from agviz.analysis.program_calls import last_passes, ops_of_pass, users_of
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from agviz.traces.reader import Trace
    from agviz.traces.rows import ForwardOpRow

_PASSES: Final = 3
_MEANS: Final = frozenset({"mean", "nanmean"})
_DEVIATIONS: Final = frozenset({"norm", "std", "var", "vector_norm"})
_BOTH: Final = frozenset({"std_mean", "var_mean"})
_SUBTRACTING: Final = frozenset({"__sub__", "sub", "subtract"})
_DIVIDING: Final = frozenset({"__mul__", "__truediv__", "div", "divide", "mul", "multiply"})
_REDUCING: Final = frozenset({"mean", "sum"})
_ALONE: Final = frozenset(
    {"__add__", "__pow__", "__radd__", "add", "clamp", "clamp_min", "expand", "expand_as", "pow"}
    | {"reciprocal", "reshape", "rsqrt", "sqrt", "unsqueeze", "view", "__getitem__", "maximum"}
)
"""What is done to a statistic before it is used, with numbers at most."""


def detached_statistics(trace: Trace) -> StepFinding | None:
    """A normalisation in the last passes whose statistics have no graph; None: none is seen.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    if not trace.meta.check_forward:
        return None
    for task in reversed(last_passes(trace, _PASSES)):
        ops = ops_of_pass(trace, task.id)
        numbers = trace.sequence_nrs(task.id)
        users = users_of(ops)
        made = {row.tensor: op for op in ops for row in op.outputs}
        for op in ops:
            if last_name(op) not in _SUBTRACTING or op.sequence_nr not in numbers:
                continue
            mean = _statistic(made, op, _MEANS | _BOTH)
            if mean is None or op.inputs[0].tensor != mean.inputs[0].tensor:
                continue
            for scaled in _using(users, op):
                by = _statistic(made, scaled, _DEVIATIONS | _BOTH)
                if by is None or not _is_of(by, mean, op) or scaled.sequence_nr not in numbers:
                    continue
                after = list(_using(users, scaled))
                if after and not all(last_name(user) in _REDUCING for user in after):
                    return _finding(mean, scaled)
    return None


def _using(users: Mapping[int, Sequence[ForwardOpRow]], op: ForwardOpRow) -> Iterator[ForwardOpRow]:
    """The calls that take what a call gave as their first argument."""
    for row in op.outputs:
        for user in users[row.tensor]:
            if user.inputs[0].tensor == row.tensor:
                yield user


def _statistic(
    made: Mapping[int, ForwardOpRow], op: ForwardOpRow, names: Collection[str]
) -> ForwardOpRow | None:
    """The call under ``no_grad`` that made what another one subtracts or divides by; or None."""
    is_pair = len(op.inputs) == 2 and last_name(op) in _SUBTRACTING | _DIVIDING
    if not is_pair or not op.inputs[0].requires_grad or op.inputs[1].requires_grad:
        return None
    found = made.get(op.inputs[1].tensor)
    while found is not None and last_name(found) in _ALONE and len(found.inputs) == 1:
        found = made.get(found.inputs[0].tensor)
    if found is None or last_name(found) not in names or found.grad_enabled:
        return None
    shape = found.outputs[0].shape or ()
    return found if found.inputs[0].requires_grad and any(size > 1 for size in shape) else None


def _is_of(deviation: ForwardOpRow, mean: ForwardOpRow, less: ForwardOpRow) -> bool:
    """Whether a deviation is one of what the mean is of, or of what is left without it."""
    of = {mean.inputs[0].tensor, *(row.tensor for row in less.outputs)}
    return deviation.inputs[0].tensor in of


def _finding(mean: ForwardOpRow, scaled: ForwardOpRow) -> StepFinding:
    return StepFinding(
        kind="detached statistics",
        heading="a normalisation has no gradient through its mean and its deviation",
        frame=mean.frame,
        paragraph=(
            f"Both are of what {scaled.line} normalises by them, but were computed under no_grad."
            " So they count as constants, and two of three terms of its derivative are missing:"
            " the gradient shifts and scales what goes in, which changes nothing of what comes"
            " out. Compute mean and deviation with gradients, outside of no_grad, and keep no_grad"
            " for running averages of them."
        ),
    )
