"""Gradients that grow step by step on their way back from the loss."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.evidence import base_name
from agviz.analysis.faint import Faintness
from agviz.analysis.gradient_flow import GradientFlow
from agviz.analysis.measures import number
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps, Stepping
    from agviz.traces.rows import NodeRow

_EXPLODED: Final = 1e3
"""Times its norm behind the loss: so far a gradient has grown that explodes."""
_EXPLODED_THROUGHOUT: Final = 1e6
"""The same, before any step, where everything stays finite."""
_EXPLODED_BY_CONSTANTS: Final = 1e4
"""The same, where no weight is what it is multiplied by."""
_PRODUCTS: Final = frozenset({"Bmm", "Mm", "Mul", "SparseMm"})
_ELEMENTWISE: Final = "Mul"
_CLIPPED: Final = 10.0
"""So much less the step may have found: more were taken away in between."""
_MOST_LEAVES: Final = 200
_MOST_READ: Final = 20_000
"""Nodes; a larger pass is not read."""


class Explosion(NamedTuple):
    """What is said of gradients that grew."""

    finding: StepFinding
    is_by_constants: bool
    """Whether constants made them grow, not weights."""
    is_less: bool
    """Than weights that start too large have to make them grow."""


def exploding(run: RunSteps) -> Iterator[StepFinding]:
    """Gradients that grow step by step from the first pass to the last, though all are finite.

    Most in the first pass, before any step: a training may bring it down, at a price.
    """
    if run.first_wrong is not None or not (run.optimizers and run.passes):
        return
    first, last = run.passes[0].id, run.passes[-1].id
    each = next((one for one in run.optimizers if one.steps[0].graph_task == first), None)
    sample = each.steps[0].sample if each is not None else ()
    gradient = math.hypot(*(row.gradient or 0.0 for row in sample))
    # Who clips what grows by weights has seen to it; growth by constants is a fault all the same.
    is_clipped = gradient < _EXPLODED
    is_unknown = any(row.gradient is None for row in sample)  # as where its square overflows
    if is_clipped or is_unknown:
        gradient = math.hypot(*run.arrived(run.passes[0]).values())
    if each is None or gradient < _EXPLODED:  # so that few passes are read for nothing
        return
    if explosion(run, each, last, math.inf, "") is None:
        return
    then = f"before any step, and so it still does in backward pass {last}"
    found = explosion(run, each, first, gradient, then, _EXPLODED_THROUGHOUT)
    found = found or explosion(run, each, first, gradient, then, _EXPLODED_BY_CONSTANTS)
    if found is not None and (found.is_by_constants or not (is_clipped or found.is_less)):
        yield found.finding


def explosion(
    run: RunSteps,
    each: Stepping,
    graph_task: int,
    gradient: float,
    then: str,
    least: float = _EXPLODED,
) -> Explosion | None:
    """Gradients that grew step by step in a pass; None: none did.

    Args:
        run: the run.
        each: the optimizer that stepped.
        graph_task: the pass.
        gradient: the norm of what the step after it found.
        then: what came of it, in words.
        least: times that they have grown.
    """
    if graph_task < 0 or run.trace.graph_task(graph_task).nodes > _MOST_READ:
        return None
    flow = GradientFlow(run.trace, graph_task)
    faintness = Faintness(flow)
    leaves = itertools.islice(run.trace.leaves(graph_task), _MOST_LEAVES)
    ways = [grown for leaf in leaves if (grown := faintness.grown(leaf)) is not None]
    ways = [one for one in ways if least * one.first <= one.last <= _CLIPPED * gradient]
    if not ways:
        return None
    grown = max(ways, key=lambda one: (one.steps, one.last / one.first))
    times = (grown.last / grown.first) ** (1 / grown.steps)
    weights = flow.weights(grown.node.index)
    again = next((leaf.parameter for leaf, uses in weights if uses >= grown.steps), None)
    shared = f" All of these steps multiply by {again}." if again else ""
    remedy = (
        "Start from smaller weights (orthogonal with a gain of 1, for recurrent ones), normalise"
        " between the steps, or use gates (GRU, LSTM); clip_grad_norm_ before each step bounds what"
        " is left."
    )
    if not again and base_name(grown.node.short_name) == _ELEMENTWISE:
        remedy = (
            "No layer's weights are multiplied there, but element by element. Steps in time"
            " (x + dt * v) grow so where dt is beyond the limit of stability: take smaller ones, or"
            " an implicit scheme. Else bound the factor (sigmoid, tanh). Clipping gradients does"
            " not mend that."
        )
    is_by_constants = not again and _is_by_constants(flow, grown.node)
    if is_by_constants:
        remedy = (
            "What it is multiplied by is no weight, but a constant of the program: look at its"
            " size. A sum over neighbours is to be divided by their number, and a step in time has"
            " a limit beyond which it is unstable. Clipping gradients does not mend that."
        )
    finding = StepFinding(
        kind="explodes",
        heading=f"the gradient explodes: it grows {times:.3g}-fold in each of"
        f" {grown.steps:,} steps like {grown.node.short_name}",
        frame=grown.node.frame or each.made,
        paragraph=(
            f"In backward pass {graph_task} its norm grew from {number(grown.first)} behind the"
            f" loss to {number(grown.last)}, {then}.{shared} {remedy}"
        ),
        first_pass=run.first_wrong,
    )
    return Explosion(finding, is_by_constants, grown.last < _EXPLODED_THROUGHOUT * grown.first)


def _is_by_constants(flow: GradientFlow, node: NodeRow) -> bool:
    """Whether a product has one factor only that gets a gradient."""
    name = base_name(node.short_name)
    outputs = {
        edge.output for edge in flow.trace.edges(flow.graph_task) if edge.producer == node.index
    }
    return name in _PRODUCTS and len(outputs) == 1
