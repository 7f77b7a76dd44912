"""Terms of a loss whose gradient goes only to what another optimizer holds, and is cleared there.

Note [Terms for nobody]
In the generator's step, its samples go through the discriminator, and the gradient comes back
through that. Where the samples are detached as in the discriminator's own step, this term of the
loss ends in the discriminator, whose gradients are cleared before its optimizer steps. It is found
by the graph: one summand of the loss leads to nothing that the step after it moves, and another one
does. Where the other optimizer steps after the same pass, or adds up gradients, the term is for it.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.steps.pass_graph import PassGraph

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps, Stepping
    from agviz.traces.rows import Frame, NodeRow

_LEAST: Final = 4
"""Steps of each optimizer."""
_PASSES: Final = 2
"""The last ones of an optimizer, in all of which it is so."""
_MOST_NODES: Final = 20_000
_MOST_TERMS: Final = 16
_MOST_LATER: Final = 8
"""Passes behind one, among which is the next that leads to the other optimizer's parameters."""
_CUTS: Final = ".detach()"


def wasted_terms(run: RunSteps) -> Iterator[StepFinding]:
    """Terms that train nothing. Note [Terms for nobody]."""
    others = [each for each in run.optimizers if len(each.steps) >= _LEAST]
    for each in others if len(others) > 1 else ():
        passes = _passes(run, each)
        lines = [_line(run, task, each, others) for task in passes]
        if len(passes) < _PASSES or None in lines or len(set(lines)) > 1:
            continue
        yield StepFinding(
            kind="wasted term",
            heading=f"a term of the loss that {each.name} makes smaller leads to nothing it holds",
            frame=lines[0],
            paragraph=(
                "What is detached here is what should get the gradient of this term: it goes to"
                " parameters of another optimizer only, which clears it before it steps."
                f" {each.name}{each.at} trains what it holds by the other terms alone. Where its"
                " own step computes this term (the generator's, say), give it the samples without"
                " detach()."
            ),
        )
        return


def _passes(run: RunSteps, each: Stepping) -> list[int]:
    """The passes before the last steps of an optimizer but one: what comes behind shows more."""
    found = []
    steps = each.steps[-_PASSES - 2 : -1]
    for last, taken in itertools.pairwise(steps):
        between = run.passes_between(last, taken)
        if len(between) and between[-1].nodes <= _MOST_NODES:
            found.append(between[-1].id)
    return found


def _line(run: RunSteps, task: int, each: Stepping, others: list[Stepping]) -> Frame | None:
    """The line that detaches what a term of a pass was to train; None: each term trains."""
    own = {row.name for row in each.held if row.name}
    idle = [
        {row.name for row in other.held if row.name}
        for other in others
        if other is not each and _is_cleared(run, task, other)
    ]
    if not idle:
        return None
    graph = PassGraph(run, task)
    roots = [node for node in graph.nodes if not graph.above.get(node.index)]
    terms = list(graph.scalars_below(roots[0].index)) if len(roots) == 1 else []
    if not 1 < len(terms) <= _MOST_TERMS:
        return None
    leaves = [_leaves(graph, term) for term in terms]
    if not any(own & found for found in leaves):
        return None
    for term, found in zip(terms, leaves, strict=True):
        if found and any(found <= held for held in idle) and not own & found:
            return _cut(graph, term)
    return None


def _is_cleared(run: RunSteps, task: int, other: Stepping) -> bool:
    """Whether what a pass gives to an optimizer's parameters is gone before the optimizer steps."""
    if any(taken.graph_task == task for taken in other.steps):
        return False
    held = {row.name for row in other.held if row.name}
    for later in run.passes.ids[bisect_right(run.passes.ids, task) :][:_MOST_LATER]:
        rows = [row for row in run.trace.parameters(later) if row.node is not None]
        reached = [row for row in rows if row.name in held]
        if reached:
            return not any(row.had_grad for row in reached)
        if any(taken.graph_task == later for taken in other.steps):
            return False
    return False


def _leaves(graph: PassGraph, term: NodeRow) -> set[str]:
    """The parameters to which a term leads; an empty name for each that has none."""
    return {
        graph.nodes[edge.consumer].parameter or ""
        for node in graph.computed_of(term.index)
        for edge in graph.below.get(node, ())
        if graph.nodes[edge.consumer].name.endswith("AccumulateGrad")
    }


def _cut(graph: PassGraph, term: NodeRow) -> Frame | None:
    """The line of a term's forward that detaches something."""
    found = {
        frame
        for node in graph.computed_of(term.index)
        for frame in graph.nodes[node].stack
        if not frame.hidden and _CUTS in frame.source
    }
    return min(found, key=lambda frame: (frame.file, frame.line), default=None)
