"""A target that a network makes of its own output, and that is trained together with it.

Note [Whose target]
A squared or absolute difference of two outputs of one network trains both. That is meant where both
are made in the same way, as of two views of a sample. Two ways are not. Temporal differences: one
side is data and a share of what the network says of the next state, ``r + gamma * net(s2)``, which
is a target only while it stays. Prediction: one side is made by further layers of what the other
is, too, ``predictor(encoder(x1))`` against ``encoder(x2)``; both come together fastest by being
constant. A program may mean either (residual gradients, functional equations, a model of dynamics
whose states are held apart by something else), so it is said and not judged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.analysis.evidence import base_name
from agviz.analysis.gradient_flow import GradientFlow
from agviz.analysis.program_calls import last_passes
from agviz.analysis.sides import COMPARING, below_of, compared, kind_of, side, weights
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz.analysis.sides import Side
    from agviz.traces.reader import Trace

_SUMMING: Final = {
    *("Add", "Div", "Expand", "Mean", "Mul", "Neg", "Pow", "Rsub", "Squeeze", "Sub", "Sum", "View"),
}
"""What leads from a loss that stands for itself to the root: no other is held against it."""
_MOST_NODES: Final = 20_000
_MOST_BELOW: Final = 500
_MOST_STEPS: Final = 32


def moving_target(trace: Trace) -> StepFinding | None:
    """The target of the last pass's loss that is trained, too; None: none is seen.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    for task in last_passes(trace, 1):
        if task.nodes > _MOST_NODES or task.create_graph:
            continue
        labels = trace.node_labels(task.id, 0, task.nodes)
        names = [base_name(label.name) for label in labels]
        places = [place for place, name in enumerate(names) if name in COMPARING | {"Mul"}]
        flow = GradientFlow(trace, task.id) if places else None
        for index in places:
            found = None if flow is None else _target(flow, index)
            if found is not None:
                return found
    return None


def _target(flow: GradientFlow, index: int) -> StepFinding | None:
    found = [side(flow, each) for each in compared(flow, index)]
    sides = [each for each in found if each is not None]
    if len(sides) != 2 or len(found) != 2:
        return None
    is_product = kind_of(flow, index) == "Mul"
    if is_product and not all(each.is_scaled for each in sides):
        return None  # of a cosine both are
    one, other = sides
    if weights(flow, one.output) & weights(flow, other.output):
        return None if is_product else _of_difference(sides)
    for plain, made in (sides, sides[::-1]):
        if _is_made_of(flow, made, plain) and _is_summed(flow, index):
            return _predicted(plain, made)
    return None


def _of_difference(sides: Sequence[Side]) -> StepFinding | None:
    """Note [Whose target]: temporal differences."""
    plain, made = sorted(sides, key=lambda each: len(each.arithmetic))
    is_one = plain.output.index != made.output.index and not plain.arithmetic
    if not is_one or not {"Add", "Mul"} <= made.arithmetic:
        return None
    return StepFinding(
        kind="moving target",
        heading="the target of the loss is trained, too: it is made of the network's own output",
        frame=made.first.frame,
        paragraph=(
            "The loss compares an output of a network with data and a share of another output of"
            " it, and gradients go into both: the target moves towards the prediction, too. If it"
            " is one of a temporal difference, use detach() or torch.no_grad() for it, or a target"
            " network; if both sides are meant to move, leave it."
        ),
        evidence=(f"node {made.first.index} ({made.first.name}) leads to {made.output.name}",),
    )


def _is_made_of(flow: GradientFlow, made: Side, plain: Side) -> bool:
    """Whether one comes, by further layers, of another output of the layer that gave the other."""
    wanted = weights(flow, plain.output)
    waiting, seen = below_of(flow, made.output.index), {made.output.index, plain.output.index}
    while waiting and len(seen) < _MOST_BELOW:
        index = waiting.pop()
        if index in seen:
            continue
        seen.add(index)
        if wanted & weights(flow, flow.nodes[index]):
            return True
        waiting += below_of(flow, index)
    return False


def _is_summed(flow: GradientFlow, index: int) -> bool:
    """Whether a loss is summed up to a root with no other that it competes with."""
    for _ in range(_MOST_STEPS):
        above = flow.edges_into(index)
        if not above:
            return True
        if len(above) > 1 or kind_of(flow, above[0].producer) not in _SUMMING:
            return False
        index = above[0].producer
    return False


def _predicted(plain: Side, made: Side) -> StepFinding:
    return StepFinding(
        kind="moving target",
        heading="the target of the loss is trained, too: it comes from the layers that predict it",
        frame=plain.first.frame,
        paragraph=(
            "The loss compares what further layers make of an output of a network with another"
            " output of the same network, and gradients go into both: they come together fastest"
            " by being the same for all samples (collapse). If one is the target of the other, use"
            " detach() for it (stop-gradient); if both are meant to move, leave it."
        ),
        evidence=(f"node {made.output.index} leads to the layer of node {plain.output.index}",),
    )
