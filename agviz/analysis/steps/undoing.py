"""Steps that change next to nothing: taken back afterwards, or made of nothing before."""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.measures import number
from agviz.analysis.median import median
from agviz.analysis.program_writes import memories_of_parameters, written
from agviz.analysis.steps.finding import StepFinding, listed
from agviz.analysis.steps.scaling import SHRUNK, clipped_while_scaled, left_at_steps
from agviz.analysis.steps.source_calls import BEYOND, calls, clips, in_loop, is_clip, near, used_up
from agviz.traces.rows import visible
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps, Stepping
    from agviz.traces.rows import ForwardOpRow, Frame

_LEAST: Final = 3
_LEFT: Final = 0.01
"""Of what a step changed, where it is taken back."""
_STILL: Final = 1e-5
"""Of a parameter's norm, where a step changes next to nothing."""
_MANY: Final = 30
"""Steps: so many of a training should lower its loss."""
_STAYS: Final = 0.05
"""Of a loss, by which it may change from batch to batch."""
_LITTLE: Final = 0.01
"""A norm of gradients, a share of it, or of that of parameters, where that is next to nothing."""
_WOULD_MOVE: Final = 0.1
"""Of a norm, by which the gradients that backward computed would have moved parameters."""
_BOUNDING: Final = (".clamp_", ".clamp_max_", ".clamp_min_", ".clip_", ".relu_")
_LARGE: Final = 1e4
"""A norm that no gradient has in a training that goes well."""
_MOST_OPS: Final = 2_000
_BESIDE: Final = 4
"""Passes before and after one, among which others may have a loss scale."""
_ABOUT: Final = 0.5
"""Of what a loss scale leaves of a gradient: clipping may take some more."""


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
        if _is_used_first(run, set(names)):
            continue
        if calls(run.trace, each.stepped, lambda _, name: name.endswith(_BOUNDING)):
            continue  # they may be at the end of a range that they are meant to keep to
        frame = _writer(run, names[0]) or each.stepped
        named = sorted({name for name in names if name})
        what = listed(named) if named else "parameters without a name"
        yield StepFinding(
            kind="set back",
            heading=f"what {each.name} changes is overwritten after each step",
            frame=frame,
            paragraph=(
                f"After each of {plural(steps, 'step')} of {each.name} that were measured,"
                f" something wrote to the parameters ({what}), and before the next one at most"
                f" {max(shares):.1%} of what the step had changed was left. Where each batch is"
                " meant to start from the same weights, that is as it should be; else nothing is"
                " learnt: an average, a copy or a state dict is written in the wrong direction."
            ),
        )


def shrunk(run: RunSteps) -> Iterator[StepFinding]:
    """Optimizers that get next to nothing of the gradients, so that parameters stand still."""
    for each in run.optimizers:
        lines = near(run.trace, each.optimizer.stepped, is_clip)
        frame = lines[0] if len(lines) == 1 else each.stepped
        left = _left(run, each)
        is_told = _is_unscaled(run, each, lines)
        is_moving = left is None or left.change > _STILL
        found = clipped_while_scaled(run, each, lines, is_told=is_told) if is_moving else None
        if found is not None:
            yield found
            return  # what is clipped together is so for all optimizers
        of_others = 0.0 if left is None else _scale_of_others(run, left)
        if left is None or (left.change > _STILL and not of_others):
            yield from _bounded(run, each, frame, is_clip=bool(lines))
            continue
        seen = (
            f"At each of {plural(left.steps, 'step')} of {each.name} that were measured, at most"
            f" {left.share:.1g} of the gradient that backward had computed was left, and no step"
            f" changed a parameter by more than {left.change:.1g} of its norm"
        )
        if of_others:
            yield StepFinding(
                kind="not scaled",
                heading=f"the loss is not scaled, but what {each.name} gets of it is unscaled",
                frame=visible(run.trace.call_site(left.graph_task)),
                paragraph=(
                    f"{seen}. Other losses are multiplied by {number(of_others)} before backward,"
                    " this one is not; the GradScaler's step divides its gradients by that all the"
                    " same. Call scaler.scale(loss).backward() here, too."
                ),
            )
        elif each.is_normalising and left.rate <= _STILL / 10:
            if left.rate <= _STILL / 100:
                yield _too_slow(each, left)  # else such a rate may be meant, as to tune by feedback
        elif left.change <= _STILL * left.share:
            yield _too_slow(each, left)
        elif left.scale > 1 and not _is_unscaled(run, each, lines):
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
            large = (
                f"The gradient of a single parameter had a norm up to {number(left.largest)}: that"
                " is what is far too large, if what is left is what was meant; look at the scale of"
                " the data and of the loss. Else look"
                if left.largest > _LARGE
                else "Look"
            )
            small = (
                "."
                if left.largest > _LARGE
                else ": it is far too small, or the learning rate is, where that is meant."
            )
            yield StepFinding(
                kind="clipped",
                heading=f"next to nothing of the gradients reaches {each.name}",
                frame=frame,
                paragraph=f"{seen}. {large} at {clip} between backward and step{small}",
            )


def _bounded(
    run: RunSteps, each: Stepping, frame: Frame | None, *, is_clip: bool
) -> Iterator[StepFinding]:
    """That gradients are clipped to so little that a whole run moves nothing, nor its loss."""
    losses = [run.losses[task] for task in run.passes.ids if task in run.losses]
    samples = [taken.sample for taken in each.steps if taken.sample]
    is_plain = each.is_torchs and not each.is_normalising and len(samples) >= _LEAST
    if not is_plain or not _MANY <= len(each.steps) <= len(losses):
        return
    whole = math.hypot(*(row.norm or 0.0 for row in samples[0])) or math.inf
    change = max(math.hypot(*(row.change or 0.0 for row in sample)) for sample in samples)
    gradient = max(math.hypot(*(row.gradient or 0.0 for row in sample)) for sample in samples)
    moved = change * len(each.steps) / whole
    first, last = median(losses[:_LEAST]), median(losses[-_LEAST:])
    if max(gradient, moved) > _LITTLE or not abs(last - first) <= _STAYS * abs(first):
        return
    looked_at = list(itertools.islice(left_at_steps(run, each), 2 * _LEAST))
    share = max((max(parts) for parts, *_ in looked_at), default=0.0)
    is_scaled = any(scale != 1 for *_, scale, _ in looked_at)
    if len(looked_at) < _LEAST or is_scaled or share > min(_LITTLE, moved / _WOULD_MOVE):
        return
    what = "where gradients are clipped" if is_clip else "at what changes gradients"
    yield StepFinding(
        kind="clipped",
        heading=f"next to nothing of the gradients reaches {each.name}",
        frame=frame,
        paragraph=(
            f"At each of {plural(len(looked_at), 'step')} of {each.name} that were measured, at"
            f" most {share:.1g} of the gradient that backward had computed was left. All"
            f" {len(each.steps):,} steps together move parameters by {moved:.1g} of their norm at"
            f" most, and the loss stays ({number(first)} at first, {number(last)} in the end)."
            f" Look {what} between backward and step: what is left is far too small."
        ),
    )


def _too_slow(each: Stepping, left: _Left) -> StepFinding:
    """That the rate is too small, whatever comes of the gradients."""
    why = (
        f"the size of gradients hardly matters to {each.name}, which divides by it"
        if each.is_normalising
        else "the whole of it would have moved them by too little as well"
    )
    return StepFinding(
        kind="too slow",
        heading=f"steps of {each.name} change next to nothing (learning rate {number(left.rate)})",
        frame=each.made,
        paragraph=(
            f"At each of {plural(left.steps, 'step')} of {each.name} that were measured, no"
            f" parameter changed by more than {left.change:.1g} of its norm. Take a larger learning"
            f" rate. Only {left.share:.1g} of the gradient that backward had computed was left"
            f" then, as by clipping or a loss scale, but that is not the reason: {why}."
        ),
    )


def _is_unscaled(run: RunSteps, each: Stepping, clips: Sequence[Frame]) -> bool:
    """Whether a line before those that clip unscales gradients."""
    found = calls(run.trace, each.stepped, lambda _, name: name.endswith(".unscale_"))
    return any(one.line < min((clip.line for clip in clips), default=math.inf) for one in found)


def unclipped(run: RunSteps) -> Iterator[StepFinding]:
    """Optimizers that get gradients beyond the norm to which they are clipped in vain."""
    if len(run.optimizers) != 1:
        return
    each = run.optimizers[0]
    lines = clips(run.trace, each.optimizer.stepped)
    if len(lines) != 1 or len(near(run.trace, each.optimizer.stepped, is_clip)) != 1:
        return
    (frame, limit), beyond, last, leapt = lines[0], [], None, -1
    for taken in each.steps:
        task = run.pass_before(taken, last)
        last = taken
        if task is None or not taken.sample or run.scale(task) != 1:
            continue
        known = run.arrived(task)
        norms = [(row.gradient, known.get(row.parameter)) for row in taken.sample]
        measured = [(left, came) for left, came in norms if left and came is not None]
        if not all(math.isclose(left, came, rel_tol=BEYOND - 1) for left, came in measured):
            return  # it has an effect in some steps, as from one on, or on some parameters
        largest = max((left for left, _ in measured), default=0.0)
        if largest > BEYOND * limit:
            beyond.append(largest)
        if any(row.norm and (row.change or 0.0) > row.norm for row in taken.sample):
            leapt = taken.graph_task
    is_sure = _is_before_backward(run, frame) or used_up(run.trace, frame) is not None
    if len(beyond) >= _LEAST or (beyond and is_sure):
        wrong = run.first_wrong
        is_lost = wrong is not None and 0 <= leapt < wrong <= leapt + _BESIDE
        then = f" Backward pass {wrong} is not finite after such a step." if is_lost else ""
        steps = (
            "the step that was" if len(beyond) == 1 else f"each of {len(beyond):,} steps that were"
        )
        most = f" to {number(max(beyond))}" if len(beyond) > 1 else ""
        yield StepFinding(
            kind="not clipped",
            heading=f"clip_grad_norm_ has no effect on what {each.name} gets",
            frame=frame,
            paragraph=(
                f"It is given the norm {number(limit)}, but at {steps} measured, the gradient of a"
                f" single parameter was larger ({number(min(beyond))}{most}), and just what"
                f" backward had computed.{then} {unclipped_by(run, frame)}"
            ),
            first_pass=wrong if is_lost else None,
        )


def _is_before_backward(run: RunSteps, clip: Frame) -> bool:
    """Whether a line that clips stands before the one that calls backward, in the same loop."""
    called = visible(run.trace.call_site(run.passes.ids[0])) if run.passes else None
    return called is not None and any(
        one.line == clip.line < called.line for one in in_loop(run.trace, called, is_clip)
    )


def unclipped_by(run: RunSteps, clip: Frame) -> str:
    """Why a call of ``clip_grad_norm_`` has no effect, and what to do, in sentences."""
    gone = used_up(run.trace, clip)
    if gone is not None:
        return (
            f"{gone.name} is an iterator (line {gone.made}), which line {gone.taken} has used up:"
            f" here it gives nothing more to clip. Make it a list in line {gone.made}."
        )
    return (
        "It was called before backward, when there was no gradient, or for other parameters. The"
        " order is zero_grad, backward, clip_grad_norm_, step."
    )


class _Left(NamedTuple):
    steps: int
    share: float
    """The largest of what was left of a gradient."""
    change: float
    """The largest change of a parameter, of its norm."""
    scale: float
    largest: float
    """The largest norm of a gradient that a pass computed, without the scale."""
    graph_task: int
    """The last pass of those that were looked at."""
    rate: float


def _scale_of_others(run: RunSteps, left: _Left) -> float:
    """The loss scale of passes beside one without, by which its gradients were divided; 0: none."""
    if left.scale != 1:
        return 0.0
    place = bisect_left(run.passes.ids, left.graph_task)
    beside = run.passes[max(0, place - _BESIDE) : place + _BESIDE]
    scales = (run.scale(task) for task in beside if task.id != left.graph_task)
    return next((scale for scale in scales if scale > 1 and _ABOUT < left.share * scale < 2), 0.0)


def _left(run: RunSteps, each: Stepping) -> _Left | None:
    changes = [
        row.change / row.norm
        for taken in each.steps
        for row in taken.sample
        if row.change is not None and row.norm
    ]
    if not changes:
        return None
    looked_at = list(itertools.islice(left_at_steps(run, each), 2 * _LEAST))
    share = max((max(parts) for parts, *_ in looked_at), default=0.0)
    if len(looked_at) < _LEAST or share > SHRUNK:
        return None
    largest = max(max(known.values()) / scale for _, known, scale, _ in looked_at)
    *_, scale, seen = looked_at[-1]
    rate = max((taken.fact.most_rate or 0.0 for taken in each.steps), default=0.0)
    return _Left(len(looked_at), share, max(changes), scale, largest, seen, rate)


def _is_used_first(run: RunSteps, names: set[str]) -> bool:
    """Whether a module is called between the last step of those and what takes it back.

    Then the step was of use, as in an adaptation to each batch.
    """
    if not run.trace.meta.check_forward or len(run.passes) < 2:
        return False
    memories = memories_of_parameters(run.trace, list(names))
    used = False
    for op in run.trace.forward_ops(run.passes[-1].id, limit=_MOST_OPS):
        if op.recomputed_in != -1:
            continue
        if any(row.memory in memories for row in written(op)) and not _is_in_step(run, op):
            return used
        used = used or (op.module is not None and any(row.memory in memories for row in op.inputs))
    return False


def _is_in_step(run: RunSteps, op: ForwardOpRow) -> bool:
    return any(
        step.begin_ns is not None and step.begin_ns <= op.time_ns <= step.time_ns
        for step in run.taken_at.values()
    )


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
