"""What is to be said of the way of a gradient.

Note [Where a gradient vanishes]
Where several gradients lead into a node, the way goes on along the largest, as that decides how
large the sum is. What is unusual is measured by the run itself, behind the loss function, whose
derivative is as small as what is left to be learnt:

- a gradient shrank or grew by more than half of the digits of its own type (3,000-fold in float32:
  what is added to it, or it to, at the other end of the way loses half of its digits),
- and by more than twice of what the steps of this very way come to that go in both directions by
  chance: their median (in powers of ten) times the square root of how many they are. A way of many
  large steps that cancel is none.

What is not finite, and what is zero, is unusual as such.
"""

from __future__ import annotations

import math
from operator import sub
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.median import median
from agviz.analysis.outcome import Outcome
from agviz.words.units import factor, plural

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from agviz.analysis.flow_steps import FlowStep, FlowSteps

_EPSILON: Final = {"float64": 2.0**-52, "complex128": 2.0**-52}
_LEAST_EPSILON: Final = 2.0**-23
"""Of float32; gradients of fewer digits go with parameters that have these."""
_TIMES: Final = "\N{MULTIPLICATION SIGN}"
_FEW_STEPS: Final = 5
"""Of fewer, the median says nothing."""
_STEEP: Final = 4.0
"""Times the median step: steps that are marked on a way that is unusual."""
_AT_ONCE: Final = 20_000
"""Steps that are looked at before others have their turn."""
_MOST: Final = 0.5
"""The share of the whole, in powers of ten, that a place has to have to be named."""


class FlowFinding(NamedTuple):
    """What is to be said of a flow."""

    outcome: Outcome
    sentence: str
    place: int | None = None
    """The step at which to look; None: none in particular."""
    steep: tuple[int, ...] = ()
    """Steps that fall or rise much more than the others."""


def judge(
    steps: FlowSteps, begin: int, dtype: str, whose: str, *, puts_out_nonfinite: bool
) -> Generator[None, None, FlowFinding]:
    """What is unusual, found in pieces: a way may be long.

    Args:
        steps: of which all norms are known.
        begin: the last step of the loss function: what it put out is compared.
        dtype: of the gradients.
        whose: what the way leads to.
        puts_out_nonfinite: whether the node at the end does.
    """
    found = _not_finite(steps) or _zero(steps)
    if found is None and puts_out_nonfinite:
        last = len(steps) - 1
        said = f"What comes to {where_is(steps[last])} is finite; what it puts out is not."
        found = FlowFinding(Outcome.FOUND, said, last, (last,))
    yield
    if found is None:
        limit = -math.log10(_EPSILON.get(dtype, _LEAST_EPSILON)) / 2
        found = yield from _gone_far(steps, begin, limit, whose)
    return found or FlowFinding(Outcome.NOTHING_UNUSUAL, _calm(steps, begin, whose))


def _not_finite(steps: FlowSteps) -> FlowFinding | None:
    came = steps[0].came
    if came is not None and not math.isfinite(came):
        said = "What backward was called with is not finite: so is all that comes of it."
        return FlowFinding(Outcome.FOUND, said, 0)
    place = next(iter(steps.norms.nonfinite()), None)
    if place is None:
        return None
    step = steps[place]
    came, where = step.came, where_is(step)
    before = f", after a norm of {came:.3g}" if came is not None and math.isfinite(came) else ""
    said = f"Not finite from {where} on{before}."
    if came is not None and not math.isfinite(came) and step.ways > 1:
        said = f"Not finite from {where} on, where {step.ways} gradients meet."
    return FlowFinding(Outcome.FOUND, said, place, (place,))


def _zero(steps: FlowSteps) -> FlowFinding | None:
    place = steps.norms.find(0.0)
    if place is None:
        return None
    came = steps[place].came
    before = f", after a norm of {came:.3g}" if came else ""
    said = f"Zero from {where_is(steps[place])} on{before}."
    return FlowFinding(Outcome.FOUND, said, place, (place,))


def _gone_far(
    steps: FlowSteps, begin: int, limit: float, whose: str
) -> Generator[None, None, FlowFinding | None]:
    """That the norm fell or rose too far, and where; None: it did not.

    Args:
        steps: whose norms are finite and not zero.
        begin: the first that counts.
        limit: powers of ten that are not too far.
        whose: what the way leads to.
    """
    norms = steps.norms.finite(begin, len(steps))
    last = norms[-1]
    most, least = norms.index(max(norms)), norms.index(min(norms))
    falls = math.log10(norms[most] / last) >= math.log10(last / norms[least])
    first = most if falls else least
    far = abs(math.log10(norms[first] / last))
    if far <= limit:
        return None
    yield
    powers = list(map(math.log10, norms[first:]))
    by = list(map(sub, powers[1:], powers))
    yield
    moved = [size for size in map(abs, by) if size > 1e-9]
    usual = median(moved) if len(moved) >= _FEW_STEPS else 0.0
    if far <= 2 * usual * math.sqrt(len(moved)):
        return None
    yield
    sign = -1 if falls else 1
    begin += first
    sizes = {begin + at: sign * each for at, each in enumerate(by, start=1) if sign * each > 0}
    yield
    steep = tuple(at for at, size in sizes.items() if size > _STEEP * usual)
    verb = "falls" if falls else "grows"
    behind = "the loss" if first == 0 else where_is(steps[begin])
    times = factor(10**far) if far < 300 else f"1e{far:.0f}"
    yield
    said, place = yield from _most_of_it(steps, sizes)
    sentence = f"The gradient {verb} {times}{_TIMES} from {behind} to {whose}, {said}."
    return FlowFinding(Outcome.FOUND, sentence, place, steep)


def _most_of_it(
    steps: FlowSteps, sizes: Mapping[int, float]
) -> Generator[None, None, tuple[str, int]]:
    """Where most of a fall or rise is, in words, and the first step there."""
    whole = sum(sizes.values())
    steepest = max(sizes, key=sizes.__getitem__)
    if sizes[steepest] >= _MOST * whole:
        return f"most of it in {where_is(steps[steepest])}", steepest
    groups: dict[tuple[str, str], list[int]] = {}
    for number, at in enumerate(sizes):
        groups.setdefault(steps.kind(at), []).append(at)
        if number % _AT_ONCE == 0:
            yield
    kinds: dict[tuple[str, str], list[int]] = {}
    for (name, _), places in groups.items():
        kinds.setdefault((name, ""), []).extend(places)
    yield

    def share(its: Sequence[int]) -> float:
        return sum(map(sizes.__getitem__, its)) / whole

    for named in (groups, kinds):
        (name, line), its = max(named.items(), key=lambda pair: share(pair[1]))
        if share(its) >= _MOST:
            where = f" at {line}" if line else ""
            return f"most of it in {plural(len(its), name, name)}{where}", min(its)
        yield
    where = f" at {line}" if line else ""
    part = f"{share(its):.0%} of it in {plural(len(its), name, name)}{where}"
    return f"in {plural(len(sizes), 'step')}, {part}", min(its)


def _calm(steps: FlowSteps, begin: int, whose: str) -> str:
    """That nothing is unusual, and how far the norm went."""
    if len(steps) - begin == 1:
        return f"Nothing unusual: what comes to {whose} is finite, straight from the loss function."
    first, last = steps[begin].norm or 0.0, steps[-1].norm or 0.0
    nodes = plural(len(steps) - begin - 1, "node")
    is_larger = last >= first
    times = factor(last / first if is_larger else first / last)
    how = f"grows {times}{_TIMES}" if is_larger else f"falls {times}{_TIMES}"
    return f"Nothing unusual: behind the loss the gradient {how} over {nodes}."


def where_is(step: FlowStep) -> str:
    """A node with its line, in words."""
    return f"{step.label} at {step.line}" if step.line else step.label
