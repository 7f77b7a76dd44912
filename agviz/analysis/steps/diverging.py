"""Losses that grow from their least on to the end of the run, and what makes them."""

from __future__ import annotations

import ast
import itertools
import math
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import line_at, nodes_of, user_files
from agviz.analysis.gradient_flow import largest_factor
from agviz.analysis.measures import number
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.steps.leaping import leap
from agviz.analysis.steps.source_calls import calls, is_schedule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps, Stepping
    from agviz.traces.rows import Frame

_LEAST: Final = 3
"""Steps from which a rule is drawn."""
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
_DIVIDED: Final = 50.0
"""Times as large as what it is given is the gradient that a division puts out."""
_RAISED: Final = 20.0
"""Times the first rate: more than what a warm-up from a tenth makes of it."""
_RISING: Final = 0.75
"""Share of the passes from its least on in which it grows."""


def diverging(run: RunSteps) -> Iterator[StepFinding]:
    """A loss that grows from step to step, until it breaks or the run ends."""
    if not run.optimizers:
        return
    grown = _growth(run)
    leapt = leap(run) if grown is None else None
    if leapt is not None:
        yield leapt
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
        frame = each.made
        heading = f"weight decay makes the weights of {each.name} grow in each step"
        why = (
            f"The learning rate ({number(rate or 0)}) times weight_decay ({number(decay or 0)}) is"
            " more than 2: each step takes more than twice a weight away, so that it flips its sign"
            " and grows"
        )
        remedy = "Take a smaller weight_decay or learning rate."
    else:
        heading, why, remedy, frame = _overshooting(run, each, rate)
    yield StepFinding(
        kind="diverges",
        heading=heading,
        frame=frame,
        paragraph=f"{why}: {told}. {remedy}",
        evidence=evidence,
        first_pass=first,
    )


def _divided(run: RunSteps, graph_task: int) -> str:
    """What division makes the gradient of a pass many times larger; empty: none does."""
    found = largest_factor(run.trace, run.trace.graph_task(graph_task), _DIVIDED)
    if found is None or not found.name.startswith(("Div", "Reciprocal", "Rsqrt")):
        return ""
    return (
        f". In backward pass {graph_task} the division at {found.frame} makes the gradient"
        f" {number(found.times)} times as large: look at how near to 0 its divisor comes"
    )


def _overshooting(
    run: RunSteps, each: Stepping, rate: float | None
) -> tuple[str, str, str, Frame | None]:
    """What is said of steps that make the loss grow, why, what to do, and the line to look at."""
    if _climbs(run, each):
        return (
            f"training climbs the loss: {each.name} was made with maximize=True",
            "Each step follows the gradient upwards",
            "Leave maximize=True out, or give backward what is to become large.",
            each.made,
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
            each.made,
        )
    at = "" if rate is None else f" (learning rate {number(rate)})"
    remedy = (
        "Take a smaller learning rate, or warm it up; clipping gradients only slows it. If a tenth"
        " of it only takes longer, look at the sign of the loss, and at targets that grow with the"
        " model."
    )
    summing = _sums(run)
    if summing is not None:
        remedy = (
            "This line asks for the sum (reduction='sum'): gradients grow with the number of"
            " elements. Take the mean, or a learning rate so many times smaller."
        )
    return (
        f"training diverges: the loss grows from step to step of {each.name}{at}",
        "Most often such steps are too large, each overshoots more than the one before",
        remedy,
        summing or each.made,
    )


def _sums(run: RunSteps) -> Frame | None:
    """The one line that asks a loss for a sum; None: none does, or several do."""
    lines = {
        line_at(run.trace, file, node.lineno, function)
        for file in user_files(run.trace)
        for function, node in nodes_of(run.trace, file)
        if isinstance(node, ast.Call)
        and any(
            word.arg == "reduction" and ast.unparse(word.value) == "'sum'" for word in node.keywords
        )
    }
    return lines.pop() if len(lines) == 1 else None


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
