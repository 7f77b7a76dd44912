"""The advantage of a policy's loss that is not detached: the policy's loss trains the critic.

Note [What weighs a log probability]
A policy gradient multiplies log probabilities of what was done by how good it was. Where that is
data less the output of a layer, and the same output is held against data by a loss of its own in
the same pass, it is the estimate of a critic. Its gradient from the product makes it say whatever
lets the policy's loss fall: no estimate is meant to. Weights that are trained otherwise have no
loss that compares them with data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.analysis.evidence import base_name
from agviz.analysis.gradient_flow import GradientFlow
from agviz.analysis.program_calls import last_passes
from agviz.analysis.sides import CHOOSING, COMPARING, JOINING, below_of, compared, kind_of, side
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from agviz.analysis.sides import Side
    from agviz.traces.reader import Trace

_MOST_NODES: Final = 20_000
_MOST_STEPS: Final = 12
_NORMAL: Final = ("Sub", "Sub", "Div", "Neg", "Pow", "Sub")
"""Nodes of ``Normal.log_prob``, the first only where its scale needs a gradient."""
_LEADING: Final = CHOOSING | JOINING | {"Add", "Exp", "Neg", "Sub", "Sum"}
_BERNOULLI: Final = "BinaryCrossEntropyWithLogits"


def trained_advantage(trace: Trace) -> StepFinding | None:
    """The advantage in the last pass that the policy's loss trains, too; None: none is seen.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    for task in last_passes(trace, 1):
        if task.nodes > _MOST_NODES:
            continue
        names = [base_name(each.name) for each in trace.node_labels(task.id, 0, task.nodes)]
        if "Mul" not in names or not COMPARING & set(names):
            continue
        flow = GradientFlow(trace, task.id)
        critics = None
        for index in (place for place, name in enumerate(names) if name == "Mul"):
            below = below_of(flow, index)
            chances = [each for each in below if _is_log_probability(flow, each)]
            if len(below) != 2 or len(chances) != 1:
                continue
            (other,) = set(below) - set(chances)
            weight = side(flow, other)
            if weight is None or "Add" not in weight.arithmetic:
                continue
            critics = _critics(flow, names) if critics is None else critics
            if weight.output.index in critics:
                return _finding(weight)
    return None


def _critics(flow: GradientFlow, names: list[str]) -> set[int]:
    """The outputs of layers that a loss holds against data."""
    found = set()
    for index in (place for place, name in enumerate(names) if name in COMPARING):
        ends = compared(flow, index)
        held = side(flow, ends[0]) if len(ends) == 1 else None
        if held is not None:
            found.add(held.output.index)
    return found


def _is_log_probability(flow: GradientFlow, index: int) -> bool:
    """Whether it is one of what was drawn, or the ratio of two (PPO)."""
    is_chosen = False
    for _ in range(_MOST_STEPS):
        kind = kind_of(flow, index)
        below = below_of(flow, index)
        if kind in {_BERNOULLI, "NllLoss"}:
            return True
        if kind == "LogSoftmax":
            return is_chosen
        if kind == "Sub":
            if len(below) == 2 and kind_of(flow, below[1]) == "Logsumexp":
                return is_chosen
            if _is_normal(flow, index):
                return True
        is_chosen |= kind in {"Gather", "Index"}
        if not below or kind not in _LEADING:
            return False
        index = below[0]
    return False


def _is_normal(flow: GradientFlow, index: int) -> bool:
    kinds = []
    for _ in range(len(_NORMAL)):
        kinds.append(kind_of(flow, index))
        below = below_of(flow, index)
        if not below:
            break
        index = below[0]
    return tuple(kinds) == _NORMAL or tuple(kinds[: len(_NORMAL) - 1]) == _NORMAL[1:]


def _finding(weight: Side) -> StepFinding:
    return StepFinding(
        kind="trained advantage",
        heading="the advantage is not detached: the loss of the policy trains the critic, too",
        frame=weight.first.frame,
        paragraph=(
            "Log probabilities are multiplied by data less an output of a layer that another loss"
            " of this pass holds against data: an estimate. Gradients of the product go into that"
            " estimate as well, which makes it say what lets the policy's loss fall, not what is"
            " so. Multiply by advantage.detach()."
        ),
        evidence=(
            f"node {weight.first.index} ({weight.first.name}) leads to {weight.output.name}",
        ),
    )
