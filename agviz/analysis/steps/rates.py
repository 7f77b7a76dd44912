"""Learning rates that are 0, fall to nothing, swing or are raised."""

from __future__ import annotations

import ast
import itertools
import math
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import own_name, tree_of, values_named
from agviz.analysis.measures import number
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.steps.source_calls import calls, conditions, is_load, is_schedule, made_at
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps, Stepping
    from agviz.traces.rows import Frame

_LEAST: Final = 3
"""Steps from which a rule is drawn."""
_SWINGS: Final = 2
"""Times that a rate has risen again: once may be a run that goes on for a little."""
_RARELY: Final = 4
"""Steps of the optimizer for each of the scheduler: that is stepped by epochs, or the like."""
_FAR: Final = 4.0
"""Times below what an optimizer is made with: so far a warm-up has not come that has just begun."""
_NOTHING: Final = 1e-4
"""Of the largest rate of the run: a schedule ends there, but does not stay there for a third."""
_WHAT_SETS_IT: Final = "Look at what sets it."
_OF_FACTOR: Final = (
    "Look at the factor that it gives: one of whole numbers, as step // warmup, is 0 until that has"
    " passed."
)
_MOST_BASE: Final = 0.1
"""Of a rate that is one: schedules that give the rate itself are made with a rate of 1."""
_ALIKE: Final = 5.0
"""Times as large at most, or small, as a rate is a factor that is one as well."""


def rates(run: RunSteps) -> Iterator[StepFinding]:
    """Rates of 0, and rates that fall to nothing long before the end."""
    for each in run.optimizers:
        most = [taken.fact.most_rate for taken in each.steps]
        known = [rate for rate in most if rate is not None]
        if len(known) < len(most) or len(known) < _LEAST:
            continue
        lines = calls(run.trace, each.stepped, is_schedule)
        frame = lines[0] if len(lines) == 1 else each.stepped
        by = "by its scheduler " if lines else ""
        peak = max(known)
        if math.isinf(peak):
            at = known.index(peak)
            yield StepFinding(
                kind="rate infinite",
                heading=f"the learning rate of {each.name} is infinite at step {at:,}",
                frame=(made_at(run.trace, lines[0]) if len(lines) == 1 else None) or frame,
                paragraph=(
                    f"Its learning rate is inf{_set(by)}, which makes all that it moves infinite or"
                    " NaN. Look at the factor that it begins with: one that divides by the number"
                    " of steps, as step ** -0.5, is infinite at step 0."
                ),
                first_pass=max(each.steps[at].graph_task, 0),
            )
            continue
        made = made_at(run.trace, lines[0]) if len(lines) == 1 else None
        if peak == 0 and each.moves:  # its steps have a size of their own
            continue
        if peak == 0:
            loaded = _loaded(run, each, lines)
            if loaded is not None:
                yield loaded
                continue
            by += "" if made is None else f"(made at {made}) "
            given = "" if lines else _worked_out(run, each)
            yield StepFinding(
                kind="rate 0",
                heading=f"the learning rate of {each.name} is 0 in all {len(known):,} steps",
                frame=each.made if given else frame,
                paragraph=(
                    f"No step of {each.name} can change anything: its learning rate is 0{_set(by)}."
                    f" {given or (_OF_FACTOR if lines else _WHAT_SETS_IT)}"
                ),
            )
            continue
        yield from _squared(run, each, known, made)
        changes = [b - a for a, b in itertools.pairwise(known) if a != b]
        is_rare = _LEAST <= len(changes) <= len(known) / _RARELY
        if is_rare and min(changes) > 0 and made is not None and _is_for(len(known), run, made):
            yield StepFinding(
                kind="horizon",
                heading=f"the learning rate of {each.name} never gets beyond its warm-up",
                frame=frame,
                paragraph=(
                    f"In {len(known):,} steps of {each.name} the rate changed {len(changes):,}"
                    f" times only, and only rose, from {number(known[0])} to {number(known[-1])}:"
                    " one cycle would have come down again at its end. The scheduler made at"
                    f" {made} is stepped once for many batches, perhaps once an epoch, though made"
                    " for the number of batches. Call its step() after each step of the optimizer,"
                    " or give it the number of epochs as total_steps."
                ),
            )
        elif is_rare and min(changes) > 0 and made is not None and _is_early(run, each, known):
            yield StepFinding(
                kind="horizon",
                heading=f"the learning rate of {each.name} never gets beyond its warm-up",
                frame=lines[0],
                paragraph=(
                    f"In {len(known):,} steps of {each.name} the rate rose {len(changes):,} times,"
                    f" from {number(known[0])} to {number(known[-1])}, of"
                    f" {number(_written(run, each))}. The scheduler made at {made} is stepped here,"
                    " once for many batches, perhaps once an epoch, while its warm-up counts"
                    " batches. Call its step() after each step of the optimizer, or give it a"
                    " warm-up of a few epochs."
                ),
            )
        yield from _swinging(each, known, made, lines)
        tail = next(
            (place for place, rate in enumerate(reversed(known)) if rate >= peak * _NOTHING),
            len(known),
        )
        if tail >= _LEAST and tail * 3 >= len(known):
            began = each.steps[len(known) - tail]
            yield StepFinding(
                kind="rate falls",
                heading=f"the learning rate of {each.name} shrinks to nothing",
                frame=frame,
                paragraph=(
                    f"The learning rate falls {by}from {number(peak)} to {number(known[-1])}: for"
                    f" the last {tail:,} of {plural(len(known), 'step')} it is below a"
                    " ten-thousandth of what it was, and next to nothing is learnt."
                    f" {_too_fast(run, lines, len(known), len(changes))}"
                ),
                evidence=(f"so small from step {began.number} on",),
            )


def _is_early(run: RunSteps, each: Stepping, known: Sequence[float]) -> bool:
    """Whether a rate that begins at next to nothing stays far below that of its optimizer."""
    return known[0] * _FAR <= known[-1] <= _written(run, each) / _FAR


def _swinging(
    each: Stepping, known: Sequence[float], made: Frame | None, lines: Sequence[Frame]
) -> Iterator[StepFinding]:
    """A cosine that is meant to fall once, and rises again and again."""
    if made is None or "CosineAnnealingLR(" not in made.source:
        return
    rates = [rate for rate, _ in itertools.groupby(known)]
    lows = [b for a, b, c in zip(rates, rates[1:], rates[2:], strict=False) if a > b < c]
    highs = [b for a, b, c in zip(rates, rates[1:], rates[2:], strict=False) if a < b > c]
    if len(lows) < _SWINGS or not highs or min(highs) < 2 * max(lows):
        return
    yield StepFinding(
        kind="swings",
        heading=f"the learning rate of {each.name} rises again, {len(lows):,} times",
        frame=lines[0],
        paragraph=(
            f"In {len(known):,} steps it fell to {number(min(lows))} and rose to"
            f" {number(max(highs))} again and again. CosineAnnealingLR, made at {made}, falls for"
            " T_max of its own steps and rises for as many. It is stepped for each batch, perhaps"
            " made for epochs: call its step() once per epoch, or give it the number of batches."
            " Where restarts are meant, CosineAnnealingWarmRestarts makes them."
        ),
    )


def _squared(
    run: RunSteps, each: Stepping, known: Sequence[float], made: Frame | None
) -> Iterator[StepFinding]:
    """A rate that is multiplied by another, where a factor is wanted."""
    lines = calls(run.trace, made, lambda _, name: name.endswith("LambdaLR"))
    base = _written(run, each)
    factor = max(known) / base if 0 < base <= _MOST_BASE else 0.0
    is_rate = 0 < base / _ALIKE <= factor <= min(base * _ALIKE, _MOST_BASE)
    is_rising = known[-2] < known[-1] == max(known)  # it may be on its way to 1
    if made is None or made.line not in {at.line for at in lines} or not is_rate or is_rising:
        return
    yield StepFinding(
        kind="rate squared",
        heading=f"the learning rate of {each.name} is multiplied by another one",
        frame=made,
        paragraph=(
            f"{each.name} is made with a learning rate of {number(base)}. LambdaLR multiplies that"
            f" by what its function returns, which was {number(factor)} at most, about a learning"
            f" rate itself: in {plural(len(known), 'step')} the rate was never above"
            f" {number(max(known))}. Return a factor, 1 for the full rate, or make {each.name} with"
            " lr=1.0."
        ),
    )


def _is_for(steps: int, run: RunSteps, made: Frame) -> bool:
    """Whether a line makes one cycle over so many batches, and not one over epochs."""

    def fits(call: ast.Call, name: str) -> bool:
        given = {word.arg: word.value for word in call.keywords}
        total = call.args[2] if len(call.args) > 2 else given.get("total_steps")
        if isinstance(total, ast.Constant):
            is_meant = total.value == steps
        else:  # what is worked out, as of the length of a loader
            is_meant = "steps_per_epoch" in given or isinstance(total, ast.Call | ast.BinOp)
        return name.endswith("OneCycleLR") and is_meant

    return made.line in {at.line for at in calls(run.trace, made, fits)}


def _loaded(run: RunSteps, each: Stepping, schedules: Sequence[Frame]) -> StepFinding | None:
    """The rate of 0 that a state dict brought; None: the program's text does not show it."""
    named = _named(run, each)
    lines = calls(
        run.trace,
        each.made,
        lambda call, name: name == f"{named}.load_state_dict" if named else is_load(call, name),
    )
    if named and each.made is not None:
        lines = [line for line in lines if line.function == each.made.function]
    written = _written(run, each)
    if len(lines) != 1:
        return None
    if not written and (not named or conditions(run.trace, lines[0])):
        return None  # what it was made with may be 0 already
    was = f", though it was made with {number(written)}" if written else ""
    also = ""
    if schedules:
        also = f" The scheduler that steps in line {schedules[0].line} may have set it, too."
    return StepFinding(
        kind="rate 0",
        heading=f"the learning rate of {each.name} is 0 in all {len(each.steps):,} steps",
        frame=lines[0],
        paragraph=(
            f"No step of {each.name} can change anything{was}: load_state_dict puts the saved"
            " learning rate in its place, as a schedule left it at its end." + also + " Set"
            " group['lr'] of its param_groups after that line, or load the state of the model only."
        ),
    )


def _named(run: RunSteps, each: Stepping) -> str:
    """The name that an optimizer is given where it is made; empty: none is seen."""
    if each.made is None:
        return ""
    for node in ast.walk(tree_of(run.trace, each.made.file)):
        if isinstance(node, ast.Assign) and node.lineno == each.made.line:
            return ast.unparse(node.targets[0])
    return ""


def _written(run: RunSteps, each: Stepping) -> float:
    """The learning rate that is written where an optimizer is made; 0: no number is.

    A name, an attribute or a key counts to which the file gives one number only.
    """
    given = _given(run, each)
    name = "" if given is None else own_name(given)
    if name and each.made is not None:
        values = set(values_named(tree_of(run.trace, each.made.file), name))
        return values.pop() if len(values) == 1 else 0.0
    value = given.value if isinstance(given, ast.Constant) else None
    return float(value) if isinstance(value, int | float) else 0.0


def _given(run: RunSteps, each: Stepping) -> ast.expr | None:
    """What stands for the learning rate where an optimizer is made; None: not one thing."""
    rates: list[ast.expr] = []

    def fits(call: ast.Call, name: str) -> bool:
        by_name = [word.value for word in call.keywords if word.arg == "lr"]
        if name.rpartition(".")[2] != each.name or call.lineno != getattr(each.made, "line", -1):
            return False
        rates.extend(by_name or call.args[1:2])
        return True

    calls(run.trace, each.made, fits)
    return rates[0] if len(rates) == 1 else None


def _worked_out(run: RunSteps, each: Stepping) -> str:
    """That a rate of 0 may be worked out where an optimizer is made, in sentences; empty: not."""
    given = _given(run, each)
    if given is None or isinstance(given, ast.Constant):
        return ""
    text, loads = ast.unparse(given), calls(run.trace, each.stepped, is_load)
    why = ": // gives whole numbers, perhaps 0; divide by /" if "//" in text else ""
    loaded = f" If line {loads[0].line} ran, look at what it loaded, too." if loads else ""
    return f"It is made with lr={text}{why}.{loaded}"


def _set(by: str) -> str:
    return f", set {by.rstrip()}" if by else ""


def _too_fast(run: RunSteps, lines: Sequence[Frame], steps: int, changes: int) -> str:
    if not lines:
        return _WHAT_SETS_IT
    made = made_at(run.trace, lines[0]) if len(lines) == 1 else None
    if made is not None and "ReduceLROnPlateau" in made.source:
        return (
            f"It is made at {made}, and lowers the rate when what it is given no longer gets"
            " better: look at what that is, and at mode: 'min' is for a loss, 'max' for what is to"
            " grow."
        )
    if changes * 2 < steps:
        return (
            f"The scheduler changed it {changes:,} times in {steps:,} steps. If it is made for"
            " epochs, step it once per epoch, and not after each batch; else let it decay less each"
            " time (a gamma nearer to 1), or over a longer time."
        )
    return (
        "The scheduler is stepped once per batch, perhaps meant for epochs: step it per epoch, or"
        f" let it decay more slowly over {plural(len(run.passes), 'pass', 'passes')}."
    )
