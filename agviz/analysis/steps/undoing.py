"""Steps that change next to nothing: taken back afterwards, or made of nothing before."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.measures import number
from agviz.analysis.steps.finding import StepFinding, listed
from agviz.analysis.steps.source_calls import calls, clips, is_clip
from agviz.traces.rows import visible
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps, Stepping
    from agviz.traces.rows import Frame

_LEAST: Final = 3
_LEFT: Final = 0.05
"""Of what a step changed, where it is taken back."""
_SHRUNK: Final = 1e-3
"""Of the gradient that a pass computed, where little of it reaches the step."""
_STILL: Final = 1e-5
"""Of a parameter's norm, where a step changes next to nothing."""
_MOST_OPS: Final = 2_000
_BEYOND: Final = 1.01
"""Times the norm that gradients are clipped to; a gradient that nothing clipped is what it was to a
hundredth."""


def set_back(run: RunSteps) -> Iterator[StepFinding]:
    """Optimizers whose steps something takes back."""
    for each in run.optimizers:
        shares: list[float] = []
        names: list[str] = []
        for last, taken in zip(each.steps, each.steps[1:], strict=False):
            changes = {row.parameter: row.change for row in last.sample}
            for row in taken.sample:
                change = changes.get(row.parameter)
                if change and row.net is not None:
                    shares.append(row.net / change)
                    names.append(row.parameter)
                elif change:
                    shares.append(1.0)
        steps = sum(bool(taken.sample) for taken in each.steps) - 1
        if steps < _LEAST or not shares or max(shares) > _LEFT:
            continue
        frame = _writer(run, names[0]) or each.stepped
        what = listed(sorted({name for name in names if name})) or "parameters without a name"
        yield StepFinding(
            kind="set back",
            heading=f"what {each.name} changes is overwritten after each step",
            frame=frame,
            paragraph=(
                f"After each of {plural(steps, 'step')} of {each.name} that were measured,"
                f" something wrote to the parameters ({what}), and before the next one at most"
                f" {max(shares):.1%} of what the step had changed was left. So nothing is learnt:"
                " an average, a copy or a state dict is written in the wrong direction."
            ),
        )


def shrunk(run: RunSteps) -> Iterator[StepFinding]:
    """Optimizers that get next to nothing of the gradients, so that parameters stand still."""
    for each in run.optimizers:
        left = _left(run, each)
        if left is None:
            continue
        lines = calls(run.trace, each.stepped, is_clip)
        frame = lines[0] if len(lines) == 1 else each.stepped
        seen = (
            f"At each of {plural(left.steps, 'step')} of {each.name} that were measured, at most"
            f" {left.share:.1g} of the gradient that backward had computed was left, and no step"
            f" changed a parameter by more than {left.change:.1g} of its norm"
        )
        if left.scale > 1:
            yield StepFinding(
                kind="clipped",
                heading="gradients are made small while they are still scaled",
                frame=frame,
                paragraph=(
                    f"{seen}. The loss is scaled by {number(left.scale)}: what clips gradients"
                    " before they are unscaled clips that factor, and unscaling divides by it once"
                    " more. Call scaler.unscale_(optimizer) before clip_grad_norm_."
                ),
            )
        else:
            clip = "the norm to which gradients are clipped" if lines else "what changes gradients"
            yield StepFinding(
                kind="clipped",
                heading=f"next to nothing of the gradients reaches {each.name}",
                frame=frame,
                paragraph=f"{seen}. Look at {clip} between backward and step: it is far too small.",
            )


def unclipped(run: RunSteps) -> Iterator[StepFinding]:
    """Optimizers that get gradients beyond the norm to which they are clipped in vain."""
    if len(run.optimizers) != 1:
        return
    each = run.optimizers[0]
    lines = clips(run.trace, each.stepped)
    if len(lines) != 1 or len(calls(run.trace, each.stepped, is_clip)) != 1:
        return
    (frame, limit), beyond, last = lines[0], [], None
    for taken in each.steps:
        task = run.pass_before(taken, last)
        last = taken
        if task is None or not taken.sample or run.scale(task) != 1:
            continue
        known = run.arrived(task)
        beyond += [
            row.gradient
            for row in taken.sample[:1]
            if row.gradient
            and row.gradient > _BEYOND * limit
            and math.isclose(row.gradient, known.get(row.parameter, 0.0), rel_tol=_BEYOND - 1)
        ]
        if len(beyond) >= 2 * _LEAST:
            break
    if len(beyond) >= _LEAST:
        yield StepFinding(
            kind="not clipped",
            heading=f"clip_grad_norm_ has no effect on what {each.name} gets",
            frame=frame,
            paragraph=(
                f"It is given the norm {number(limit)}, but at each of {len(beyond):,} steps that"
                " were measured, the gradient of a single parameter was larger"
                f" ({number(min(beyond))} to {number(max(beyond))}), and just what backward had"
                " computed. It was called before backward, when there was no gradient, or for other"
                " parameters. The order is zero_grad, backward, clip_grad_norm_, step."
            ),
        )


class _Left(NamedTuple):
    steps: int
    share: float
    """The largest of what was left of a gradient."""
    change: float
    """The largest change of a parameter, of its norm."""
    scale: float


def _left(run: RunSteps, each: Stepping) -> _Left | None:
    changes = [
        row.change / row.norm
        for taken in each.steps
        for row in taken.sample
        if row.change is not None and row.norm
    ]
    if not changes or max(changes) > _STILL:
        return None
    shares: list[float] = []
    scale, steps, last = 1.0, 0, None
    for taken in each.steps:
        task = run.pass_before(taken, last)
        last = taken
        if task is None or not taken.sample:
            continue
        known = run.arrived(task)
        scale = run.scale(task)
        found = [
            row.gradient * scale / known[row.parameter]
            for row in taken.sample
            if row.gradient and known.get(row.parameter, 0.0) > 0
        ]
        if found:
            shares.append(max(found))
            steps += 1
        if steps >= 2 * _LEAST:
            break
    if steps < _LEAST or max(shares) > _SHRUNK:
        return None
    return _Left(steps, max(shares), max(changes), scale)


def _writer(run: RunSteps, name: str) -> Frame | None:
    """The line that wrote to a parameter last, where the program's torch functions are recorded."""
    if not name or not run.trace.meta.check_forward or len(run.passes) < 2:
        return None
    for op in reversed(run.trace.forward_ops(run.passes[-1].id, limit=_MOST_OPS)):
        if any(tensor.parameter == name for tensor in op.outputs) and op.name.endswith("_"):
            frame = visible(op.stack)
            if frame is not None:
                return frame
    return None
