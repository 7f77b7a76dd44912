"""Learning rates that are 0, fall to nothing, or make the loss grow without end."""

from __future__ import annotations

import ast
import itertools
import math
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import own_name, parsed, values_named
from agviz.analysis.evidence import base_name
from agviz.analysis.faint import Faintness
from agviz.analysis.measures import number
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.steps.source_calls import (
    BEYOND,
    calls,
    clips,
    conditions,
    is_load,
    is_schedule,
    made_at,
    used_up,
)
from agviz.analysis.steps.stuck import largest_factor
from agviz.analysis.vanishing import GradientFlow
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps, Stepping
    from agviz.traces.rows import Frame, NodeRow

_LEAST: Final = 3
"""Steps from which a rule is drawn."""
_SWINGS: Final = 2
"""Times that a rate has risen again: once may be a run that goes on for a little."""
_RARELY: Final = 4
"""Steps of the optimizer for each of the scheduler: that is stepped by epochs, or the like."""
_NOTHING: Final = 1e-4
"""Of the largest rate of the run: a schedule ends there, but does not stay there for a third."""
_GROWN: Final = 1e3
"""By so much the loss has grown from its least where it diverges and nothing breaks."""
_GROWN_TO_BREAK: Final = 30.0
"""The same where it then is not finite."""
_MOST_PASSES: Final = 1_000
"""Looked at, the last ones: what diverges does so quickly."""
_GROWN_BESIDES: Final = 10.0
"""By so much it has grown without its largest jump: a hard batch is no divergence."""
_LEAST_CHANGE: Final = 0.02
"""Of a parameter's norm, by some step, where one is known: a loss that steps make grow moves it."""
_LEAP: Final = 10.0
"""Times the norm of the parameters: so far no step goes that is meant to."""
_EXPLODED: Final = 1e3
"""Times its norm behind the loss: so far a gradient has grown that explodes."""
_EXPLODED_THROUGHOUT: Final = 1e6
"""The same, before any step, where everything stays finite."""
_BY_CONSTANTS: Final = "What it is multiplied by is no weight, but a constant of the program"
_PRODUCTS: Final = frozenset({"Bmm", "Mm", "Mul", "SparseMm"})
_CLIPPED: Final = 10.0
"""So much less the step may have found: more were taken away in between."""
_MOST_LEAVES: Final = 200
_MOST_READ: Final = 20_000
"""Nodes; a larger pass is not read."""
_SOON: Final = 8
"""Passes from such a step to the first one that is not finite."""
_WHAT_SETS_IT: Final = "Look at what sets it."
_OF_FACTOR: Final = (
    "Look at the factor that it gives: one of whole numbers, as step // warmup, is 0 until that has"
    " passed."
)
_DIVIDED: Final = 50.0
"""Times as large as what it is given is the gradient that a division puts out."""
_RAISED: Final = 20.0
"""Times the first rate: more than what a warm-up from a tenth makes of it."""
_RISING: Final = 0.75
"""Share of the passes from its least on in which it grows."""
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
    for node in ast.walk(parsed(run.trace.source(each.made.file))):
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
        values = set(values_named(parsed(run.trace.source(each.made.file)), name))
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
            f"The scheduler changed it {changes:,} times in {steps:,} steps: let it decay less each"
            " time (a gamma nearer to 1), or over a longer time."
        )
    return (
        "The scheduler is stepped once per batch, perhaps meant for epochs: step it per epoch, or"
        f" let it decay more slowly over {plural(len(run.passes), 'pass', 'passes')}."
    )


def diverging(run: RunSteps) -> Iterator[StepFinding]:
    """A loss that grows from step to step, until it breaks or the run ends."""
    if not run.optimizers:
        return
    grown = _growth(run)
    leap = _leap(run) if grown is None else None
    if leap is not None:
        yield leap
        return
    if grown is None:
        weights = next((each for each in run.optimizers if _explodes(each)), None)
        if weights is None:
            return
        each, told, first = weights, _weights(weights), None
    else:
        passes, losses = grown
        each = max(run.optimizers, key=lambda one: _rate(one) or 0.0)
        shown = ", ".join(f"{loss:.3g}" for loss in _few(losses))
        told = f"from backward pass {passes[0]} on the loss grows: {shown}"
        first = passes[0]
        if run.first_wrong is not None:
            told += f"; in backward pass {run.first_wrong} it or its gradients are not finite"
        told += _divided(run, passes[0])
    rate, decay = _rate(each), _decay(each)
    change = _change(each)
    if change is not None and change < _LEAST_CHANGE:
        return
    evidence = (
        ()
        if change is None
        else (f"the largest step changed a parameter by {change:.3g} times its norm",)
    )
    if _flips(each):
        heading = f"weight decay makes the weights of {each.name} grow in each step"
        why = (
            f"The learning rate ({number(rate or 0)}) times weight_decay ({number(decay or 0)}) is"
            " more than 2: each step takes more than twice a weight away, so that it flips its sign"
            " and grows"
        )
        remedy = "Take a smaller weight_decay or learning rate."
    else:
        heading, why, remedy = _overshooting(run, each, rate)
    yield StepFinding(
        kind="diverges",
        heading=heading,
        frame=each.made,
        paragraph=f"{why}: {told}. {remedy}",
        evidence=evidence,
        first_pass=first,
    )


def _divided(run: RunSteps, graph_task: int) -> str:
    """What division makes the gradient of a pass many times larger; empty: none does."""
    found = largest_factor(run, run.trace.graph_task(graph_task), _DIVIDED)
    if found is None or not found.name.startswith(("Div", "Reciprocal", "Rsqrt")):
        return ""
    return (
        f". In backward pass {graph_task} the division at {found.frame} makes the gradient"
        f" {number(found.times)} times as large: look at how near to 0 its divisor comes"
    )


def _overshooting(run: RunSteps, each: Stepping, rate: float | None) -> tuple[str, str, str]:
    """What is said of steps that make the loss grow, why, and what to do."""
    if _climbs(run, each):
        return (
            f"training climbs the loss: {each.name} was made with maximize=True",
            "Each step follows the gradient upwards",
            "Leave maximize=True out, or give backward what is to become large.",
        )
    began = each.steps[0].fact.most_rate or 0.0
    if rate is not None and _RAISED * began <= rate:
        by = "Its scheduler" if calls(run.trace, each.stepped, is_schedule) else "Something"
        return (
            (
                f"training diverges: the learning rate of {each.name} rises from {number(began)} to"
                f" {number(rate)}"
            ),
            f"{by} raises it step by step, until each step overshoots",
            (
                "Bound it, and take a smaller one: a warm-up ends at the rate that is meant, a"
                " gamma above 1 has no end."
            ),
        )
    at = "" if rate is None else f" (learning rate {number(rate)})"
    return (
        f"training diverges: the loss grows from step to step of {each.name}{at}",
        "Most often such steps are too large, each overshoots more than the one before",
        (
            "Take a smaller learning rate, or warm it up; clipping gradients only slows it. If a"
            " tenth of it only takes longer, look at the sign of the loss, and at targets that"
            " grow with the model."
        ),
    )


def _leap(run: RunSteps) -> StepFinding | None:
    """A step that moved parameters far beyond themselves, after which a pass is not finite."""
    if run.first_wrong is None:
        return None
    after_wrong = len(run.passes.after(run.first_wrong))
    for each in run.optimizers:
        for taken in each.steps:
            if taken.graph_task >= run.first_wrong:
                break
            if len(run.passes.after(taken.graph_task)) - after_wrong > _SOON:
                continue  # what breaks long after it may well have another cause
            known = [row for row in taken.sample if row.norm is not None and row.change is not None]
            norm = math.hypot(*(row.norm or 0.0 for row in known))
            change = math.hypot(*(row.change or 0.0 for row in known))
            if not norm or change < _LEAP * norm:
                continue
            gradient = math.hypot(*(row.gradient or 0.0 for row in known))
            if not gradient:  # it follows something else, of which the rate is not the measure
                continue
            rate = taken.fact.most_rate
            at = "" if rate is None else f" (learning rate {number(rate)})"
            leap = f"a step of {each.name}{at} changed parameters by {number(change / norm)} times"
            clip = _clip_of_nothing(run, each, gradient)
            if clip is None and not each.is_normalising:
                then = (
                    f"so that {leap} their norm, and in backward pass {run.first_wrong} the loss or"
                    " its gradients are not finite"
                )
                exploded = _explosion(run, each, taken.graph_task, gradient, then)
                if exploded is not None:
                    return exploded
            return StepFinding(
                kind="leaps",
                heading=f"{leap} their norm",
                frame=clip or each.made,
                paragraph=(
                    f"Step {taken.number} of {each.name} moved parameters whose norm was"
                    f" {number(norm)} by {number(change)}; their gradient was {number(gradient)}."
                    f" In backward pass {run.first_wrong} the loss or its gradients are not finite:"
                    " what overflows there is what such a step leads to. Take a smaller learning"
                    f" rate, {_remedy(run, each, gradient)}"
                ),
                first_pass=run.first_wrong,
            )
    return None


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
    if is_clipped:
        gradient = math.hypot(*run.arrived(run.passes[0]).values())
    if each is None or gradient < _EXPLODED:  # so that few passes are read for nothing
        return
    if _explosion(run, each, last, math.inf, "") is None:
        return
    then = f"before any step, and so it still does in backward pass {last}"
    found = _explosion(run, each, first, gradient, then, _EXPLODED_THROUGHOUT)
    if found is not None and (not is_clipped or _BY_CONSTANTS in found.paragraph):
        yield found


def _explosion(
    run: RunSteps,
    each: Stepping,
    graph_task: int,
    gradient: float,
    then: str,
    least: float = _EXPLODED,
) -> StepFinding | None:
    """Gradients that grew step by step in a pass.

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
    if not again and _is_by_constants(flow, grown.node):
        remedy = (
            f"{_BY_CONSTANTS}: look at its size. A sum over neighbours is to be divided by their"
            " number, and a step in time has a limit beyond which it is unstable. Clipping"
            " gradients does not mend that."
        )
    return StepFinding(
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


def _is_by_constants(flow: GradientFlow, node: NodeRow) -> bool:
    """Whether a product has one factor only that gets a gradient."""
    name = base_name(node.short_name)
    outputs = {
        edge.output for edge in flow.trace.edges(flow.graph_task) if edge.producer == node.index
    }
    return name in _PRODUCTS and len(outputs) == 1


def _remedy(run: RunSteps, each: Stepping, gradient: float) -> str:
    """What to do about a gradient, besides a smaller rate, in the second half of a sentence."""
    lines = clips(run.trace, each.optimizer.stepped)
    if len(lines) == 1 and gradient > BEYOND * lines[0][1]:
        frame, limit = lines[0]
        if (gone := used_up(run.trace, frame)) is not None:
            return (
                f"or have line {frame.line} clip gradients: it is given {gone.name}, an iterator"
                f" that line {gone.taken} has used up, so that it clips nothing. Make it a list in"
                f" line {gone.made}."
            )
        return (
            f"or look at line {frame.line}, where gradients are clipped to {number(limit)}: this"
            " one was not. The order is zero_grad, backward, clip_grad_norm_, step."
        )
    return "or clip the gradients if it is they that are too large."


def _clip_of_nothing(run: RunSteps, each: Stepping, gradient: float) -> Frame | None:
    """The line that is to clip a gradient, and is given no parameters; None: there is none."""
    lines = clips(run.trace, each.optimizer.stepped)
    if len(lines) != 1 or gradient <= BEYOND * lines[0][1]:
        return None
    return lines[0][0] if used_up(run.trace, lines[0][0]) is not None else None


def _climbs(run: RunSteps, each: Stepping) -> bool:
    """Whether the call that made an optimizer is written with ``maximize=True``."""

    def fits(call: ast.Call, name: str) -> bool:
        given = {word.arg: word.value for word in call.keywords}.get("maximize")
        is_on = isinstance(given, ast.Constant) and given.value is True
        return is_on and name.rpartition(".")[2] == each.name

    made = each.made
    return made is not None and made.line in {at.line for at in calls(run.trace, made, fits)}


def _growth(run: RunSteps) -> tuple[list[int], list[float]] | None:
    """The passes, and their losses, from the least loss on that grows from there to the end."""
    stop = run.first_wrong
    call = run.trace.call_site(run.passes[-1].id)[-1:] if run.passes else ()
    before = (each for each in reversed(run.passes.ids) if stop is None or each < stop)
    lasts = (each for each in before if each in run.losses)
    ids = list(itertools.islice(lasts, _MOST_PASSES))[::-1]
    if stop is None:
        finite = [loss for number in ids if math.isfinite(loss := run.losses[number])]
        if not finite or finite[-1] < _GROWN * min(finite):  # to ask for lines is dear
            return None
        ids = [number for number in ids if run.trace.call_site(number)[-1:] == call]
    known = [(number, run.losses[number]) for number in ids if math.isfinite(run.losses[number])]
    if len(known) < _LEAST:
        return None
    least = min(range(len(known)), key=lambda place: known[place][1])
    tail = known[least:]
    first, last = tail[0][1], tail[-1][1]
    if len(tail) < _LEAST or first <= 0:
        return None
    powers = [math.log(max(b[1], first) / max(a[1], first)) for a, b in itertools.pairwise(tail)]
    if sum(powers) - max(powers) < math.log(_GROWN_BESIDES):
        return None
    rises = sum(b[1] > a[1] for a, b in itertools.pairwise(tail))
    start = known[0][1]
    least_factor = _GROWN if stop is None else _GROWN_TO_BREAK
    # Against what it was at first, too: a loss that had come down to nothing may well rise.
    if last < least_factor * max(first, abs(start)) or rises < _RISING * (len(tail) - 1):
        return None
    return [number for number, _ in tail], [loss for _, loss in tail]


def _few(losses: Sequence[float]) -> Sequence[float]:
    if len(losses) <= 5:
        return losses
    return [losses[number * (len(losses) - 1) // 4] for number in range(5)]


def _rate(each: Stepping) -> float | None:
    return max(
        (taken.fact.most_rate for taken in each.steps if taken.fact.most_rate is not None),
        default=None,
    )


def _decay(each: Stepping) -> float | None:
    return each.steps[-1].fact.decay


def _flips(each: Stepping) -> bool:
    """Whether weight decay alone makes weights grow; of Adam's it is part of what is normalised."""
    rate, decay = each.steps[-1].fact.most_rate, _decay(each)
    return each.name in {"AdamW", "SGD"} and (rate or 0.0) * (decay or 0.0) > 2


def _explodes(each: Stepping) -> bool:
    """Whether weight decay does, and a weight of the sample has grown a thousandfold."""
    norms = _sampled(each)
    return _flips(each) and len(norms) >= _LEAST and norms[-1] > _GROWN * max(norms[0], 1e-12)


def _sampled(each: Stepping) -> list[float]:
    """The norm of the largest parameter of the sample, by step."""
    rows = [[row.norm for row in taken.sample if row.norm is not None] for taken in each.steps]
    return [max(row) for row in rows if row]


def _weights(each: Stepping) -> str:
    shown = ", ".join(f"{norm:.3g}" for norm in _few(_sampled(each)))
    return f"the norm of a parameter grows: {shown}"


def _change(each: Stepping) -> float | None:
    ratios = [
        row.change / row.norm
        for taken in each.steps
        for row in taken.sample
        if row.change is not None and row.norm
    ]
    return max(ratios, default=None)
