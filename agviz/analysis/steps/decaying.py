"""Weights that are pulled to nothing before gradients can hold them: by a decay, or a write."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Final

from agviz.analysis.measures import number
from agviz.analysis.median import median
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.steps.source_calls import calls
from agviz.words.units import plural

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps, Stepping

_FEWEST: Final = 10
"""Steps."""
_FEW: Final = 3
"""Losses, or measured steps, the first and the last, that are looked at."""
_SHARE: Final = 0.02
"""Of a weight that a step takes away; usual are 1e-5 to 1e-3."""
_ADDED: Final = 0.1
"""Times a weight, added to its gradient; usual is 1e-2 at most."""
_LEFT: Final = 0.5
"""Of a norm. Where so little is left of the loss, something is learnt all the same."""
_MULTIPLIED: Final = 0.995
"""Of a norm, what is left from step to step at most where something else multiplies by it."""
_ALIKE: Final = 0.01
"""By which that may differ, between parameters and between steps."""
_BESIDE: Final = 4.0
"""Times what the step changed, that was written besides."""
_DECOUPLED: Final = "AdamW"
_ADDING: Final = frozenset({"Adam", "Adamax", "NAdam", "RAdam", "RMSprop", "SGD"})
"""Optimizers that add the decay to the gradient."""


def decaying(run: RunSteps) -> Iterator[StepFinding]:
    """Optimizers whose weight decay outweighs gradients from the first step on.

    Of a single layer, or of tensors that no module has, so strong a penalty may well be meant:
    ridge regression, a prior of latents.
    """
    losses = [run.losses[each] for each in run.passes.ids if each in run.losses]
    if len(losses) < _FEWEST:
        return
    first, last = median(losses[:_FEW]), median(losses[-_FEW:])
    if not last > _LEFT * first > 0:
        return
    for each in run.optimizers:
        decay = each.steps[-1].fact.decay or 0.0
        rate = median(taken.fact.least_rate or 0.0 for taken in each.steps)
        is_normalised = decay >= _ADDED and each.name in _ADDING - {"SGD"}
        is_normalised = is_normalised and not _is_decoupled(run, each)
        is_large = _SHARE <= rate * decay <= 2 and each.name in {"SGD", _DECOUPLED}
        if len(each.steps) < _FEWEST or not decay or not (is_normalised or is_large):
            continue
        norms = _shrunk(each, rate, decay)
        if not norms:
            continue
        name, before, after = max(norms, key=lambda row: row[1])
        told = (
            "Adds so many times each weight to its gradient: more than the gradient itself at first"
            if is_normalised
            else f"Times the learning rate ({number(rate)}), that takes {rate * decay:.2g} of each"
            " weight away in every step; 1e-5 to 1e-3 is usual"
        )
        yield StepFinding(
            kind="decays",
            heading=f"weight_decay={number(decay)} of {each.name} pulls weights to nothing",
            frame=each.made,
            paragraph=(
                f"{told}. In {plural(len(each.steps), 'step')} the norm of {name} fell from"
                f" {number(before)} to {number(after)}, and the loss went from {number(first)} to"
                f" {number(last)} only. Take a weight_decay that is smaller by powers of ten."
            ),
        )


def multiplied(run: RunSteps) -> Iterator[StepFinding]:
    """Optimizers behind whose first steps weights are multiplied by one number below 1.

    Later, gradients hold against it.
    """
    for each in run.optimizers:
        factors = _factors(each)
        if len(factors) < _FEWEST or max(factors) > min(_MULTIPLIED, min(factors) + _ALIKE):
            continue
        lines = calls(run.trace, each.stepped, lambda _, name: name.endswith(".mul_"))
        yield StepFinding(
            kind="multiplied",
            heading=f"something else multiplies what {each.name} holds after each of its steps",
            frame=lines[0] if len({line.line for line in lines}) == 1 else each.stepped,
            paragraph=(
                f"From step to step the norm of weights is {number(median(factors))} of what it"
                f" was, in each of the first {_FEWEST} alike, and they were written after the step."
                " An average of weights does that whose copy shares their"
                " memory: state_dict() and detach() give the memory itself. Keep p.detach().clone()"
                " there; for a weight decay, take that of the optimizer."
            ),
        )
        return


def _weights(each: Stepping) -> set[str]:
    return {row.name for row in each.held if row.name and len(row.shape) > 1}


def _factors(each: Stepping) -> list[float]:
    """What was left of weights at each of the first steps, beside what these changed."""
    weights = _weights(each)
    factors: list[float] = []
    for last, taken in itertools.pairwise(each.steps[: _FEWEST + 1]):
        before = {row.parameter: row for row in last.sample}
        for row in taken.sample:
            then = before.get(row.parameter)
            if row.parameter not in weights or then is None or not then.norm or row.norm is None:
                continue
            if row.net is None or then.change is None or row.net < _BESIDE * then.change:
                return []
            factors.append(row.norm / then.norm)
    return factors


def _shrunk(each: Stepping, rate: float, decay: float) -> list[tuple[str, float, float]]:
    """Measured weights, with norms at first and at last; empty: not all shrank by the decay."""
    weights = _weights(each)
    rows = [row for taken in each.steps for row in taken.sample if row.parameter in weights]
    by_name = {name: [row for row in rows if row.parameter == name] for name in weights}
    measured = {name: known for name, known in by_name.items() if len(known) >= _FEW}
    first = [row for known in measured.values() for row in known[:_FEW]]
    norm = math.fsum(row.norm or 0.0 for row in first)
    if each.name == _DECOUPLED:
        rest = _LEFT * math.fsum(row.change or 0.0 for row in first)
        pull = rate * decay * norm
    else:
        rest, pull = math.fsum(row.gradient or 0.0 for row in first), decay * norm
    found = [(name, known[0].norm or 0.0, known[-1].norm) for name, known in measured.items()]
    if len(weights) < 2 or pull <= rest:
        return []
    shrunk = [
        (name, before, after)
        for name, before, after in found
        if after is not None and after <= _LEFT * before
    ]
    return shrunk if len(shrunk) == len(found) else []


def _is_decoupled(run: RunSteps, each: Stepping) -> bool:
    """Whether the file that makes an optimizer has it take its decay from the weights alone."""

    def fits(call: ast.Call, _name: str) -> bool:
        return any(word.arg == "decoupled_weight_decay" for word in call.keywords)

    return bool(calls(run.trace, each.made, fits))
