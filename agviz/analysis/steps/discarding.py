"""Gradients of some passes that are cleared before a step has used them.

Note [Thrown away]
Several passes from one line lead to the parameters of an optimizer, and then it steps. Where the
norms that it finds are those of the last pass alone, the others have been thrown away: gradients
that are added up have another norm, and what merges or projects them another in each parameter.
Passes may be meant for something else than a step: to find gradients of inputs (an attack), a place
nearby to look from (SAM), or figures of single samples. So nothing is said where a pass leads to a
leaf that no optimizer holds, where parameters are written to between two steps, where another
optimizer steps between them, or where the program or a hook works with ``.grad`` itself.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import TYPE_CHECKING, Final

from agviz.analysis.steps.finding import StepFinding, listed
from agviz.analysis.steps.source_calls import in_loop, is_clear, uses_gradients
from agviz.traces.rows import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps, Stepping, TakenStep
    from agviz.traces.rows import Frame, GraphTaskRow, LeafNorm

_LEAST: Final = 3
"""Steps, and three of four that are looked at."""
_STEPS: Final = 9
_MOST_PASSES: Final = 64
"""Before a step."""
_SAME: Final = 1e-3
"""Of a norm, by which it may differ from another that is the same but for rounding."""
_LEAST_PART: Final = 0.1
"""Of the norm after the last pass: what is smaller could be in a sum without being seen."""


def thrown_away(run: RunSteps) -> Iterator[StepFinding]:
    """Optimizers that follow the last of several passes alone. Note [Thrown away]."""
    for each in run.optimizers:
        if each.name == "LBFGS" or each.is_moved_beside:
            continue
        # Of the first step it is not known whether something moved the parameters before it.
        pairs = list(itertools.pairwise(each.steps[:_STEPS]))
        led = [(taken, _leading_to(run, each, last, taken)) for last, taken in pairs]
        usual = Counter(len(between) for _, between in led).most_common(1)[0][0] if led else 0
        several = [(taken, between) for taken, between in led if len(between) == usual]
        if usual < 2 or len(several) < max(_LEAST, len(pairs) * 3 / 4):
            continue  # where their number varies, steps may be left out, as after an exception
        between = several[0][1]
        are_alone = all(is_alone(run, *one) for one in several)
        if not are_alone or _is_used_otherwise(run, each, between):
            continue
        called = visible(run.trace.call_site(between[-1].id))
        cleared = in_loop(run.trace, called, is_clear)
        lines = f" (lines {listed([str(one.line) for one in cleared])})" if cleared[1:] else ""
        yield StepFinding(
            kind="thrown away",
            heading=f"{each.name} follows only the last of {len(between):,} backward passes",
            frame=cleared[0] if len(cleared) == 1 else called,
            paragraph=(
                f"Between two steps of {each.name}, {len(between):,} backward passes lead to what"
                f" it holds. At each of {len(several):,} steps that were looked at, the norms of"
                " .grad were those of the last pass alone: what the others gave was cleared before."
                f" Where they are to be added up, call zero_grad{lines} only once per step: right"
                " after step()."
            ),
        )


def _leading_to(
    run: RunSteps, each: Stepping, last: TakenStep, taken: TakenStep
) -> list[GraphTaskRow]:
    """The passes between two steps that lead to what an optimizer holds, if they are alike."""
    between = run.passes_between(last, taken)
    if not 2 <= len(between) <= _MOST_PASSES:
        return []
    held = {row.name for row in each.held if row.name}
    found = [task for task in between if held & run.arrived(task).keys()]
    lines = {visible(run.trace.call_site(task.id)) for task in found}
    if not found or len(lines) > 1 or any(task.create_graph or task.error for task in found):
        return []
    steps = (step.graph_task for other in run.optimizers for step in other.steps)
    return [] if any(found[0].id <= step < found[-1].id for step in steps) else found


def is_alone(run: RunSteps, taken: TakenStep, between: Sequence[GraphTaskRow]) -> bool:
    """Whether a step found what the last pass gave, maybe clipped, and nothing of the others."""
    last = {row.parameter: row for row in run.norms(between[-1])}
    before = run.arrived(between[-2])
    parts: list[float] = []
    for row in taken.sample:
        leaf = last.get(row.parameter)
        was = before.get(row.parameter, 0.0)
        if leaf is None or not row.gradient or not was or not leaf.norm > 0:
            continue
        if was <= _LEAST_PART * leaf.norm and is_added_to(run, leaf):
            continue
        if not began_with_nothing(run, leaf):
            return False
        parts.append(row.gradient / leaf.norm)
    if len(parts) < 2:
        return bool(parts) and math.isclose(parts[0], 1.0, rel_tol=_SAME)
    # Clipping takes the same part of all parameters.
    return max(parts) < 1 + _SAME and max(parts) < (1 + _SAME) * min(parts)


def began_with_nothing(run: RunSteps, leaf: LeafNorm) -> bool:
    """Whether the gradient of a leaf after a pass is no more than came to it in that pass."""
    if not is_added_to(run, leaf):
        return True
    rows = run.trace.health(leaf.graph_task, leaf.node)
    came = [row.norm for row in rows if row.role == "sum"] or [
        row.norm
        for edge in run.trace.edges_into(leaf.graph_task, leaf.node)
        for row in run.trace.health(leaf.graph_task, edge.producer)
        if (row.role, row.slot) == ("output", edge.output)
    ]
    return len(came) == 1 and math.isclose(came[0] or 0.0, leaf.norm, rel_tol=_SAME)


def is_added_to(run: RunSteps, leaf: LeafNorm) -> bool:
    """Whether a leaf had a gradient, maybe of zeros, before a pass."""
    rows = run.trace.health(leaf.graph_task, leaf.node)
    return any(row.role == "accumulated" for row in rows)


def _is_used_otherwise(run: RunSteps, each: Stepping, between: Sequence[GraphTaskRow]) -> bool:
    """Whether gradients may have been used without a step. Note [Thrown away]."""
    held = {row.name for other in run.optimizers for row in other.held if row.name}
    for task in between:
        leaves = {row.node: row.parameter for row in run.norms(task)}
        hooked = any(call.node in leaves for call in run.trace.hook_calls(task.id))
        if hooked or not held.issuperset(leaves.values()):
            return True
    called = run.trace.call_site(between[-1].id)
    frames = [*each.optimizer.stepped, *called]
    files: dict[str, Frame] = {frame.file: frame for frame in frames if not frame.hidden}
    return any(uses_gradients(run.trace, frame, each.stepped, called) for frame in files.values())
