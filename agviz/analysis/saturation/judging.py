"""Which activations of a run are saturated, held against the run itself.

Note [Held against the run]
Outputs at the rim are no fault by themselves: a trained classifier is sure, a gate is shut, half
of what ReLU puts out is 0. So a line that is hardly open (``RIM``) is found only where the run has
something else to hold it against: the same line in an earlier pass, in an earlier call of the same
pass (a recurrence), or other lines that call the same function; each ten times as open. Where there
is nothing of the kind, only what was so before anything had been learnt. Nothing is said of a run
whose loss came down to half meanwhile, nor, but for the first of these, of an activation through
which all parameters learn: what it puts out is the output.

Note [What learns without it]
A loss that came down may owe nothing to what lies before an activation: the layers behind it have
learnt what can be learnt of constants. It is so where from the first pass on next to nothing came
through (``SHUT``), and where all that is put out goes into layers: a gate, and what a loss takes,
may be at its rim on purpose, and a ReLU leaves out most of what comes.

Note [Clamps]
Clamps bound numbers of any kind: they are not held against each other, nor against what they did
before, as the loss of a hinge, or PPO's ratio, reaches its bound by what was learnt. What is found
is one that lets hardly anything through from the first pass on and does not keep most at its lower
bound, also where all is learnt through it: errors that are larger than a bound have no gradient.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from agviz.analysis.median import median
from agviz.analysis.saturation.openness import CLAMP, RIM, SHUT, most

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.saturation.reading import RunSaturation
    from agviz.analysis.saturation.sites import PassSites, Site, SiteKey

Trend = Literal["passes", "calls", "siblings", "start"]
_TIMES: Final = 10.0
"""So much more open is what a saturated line is held against."""
_FEWEST_CALLS: Final = 4
_FEWEST_SIBLINGS: Final = 2


class Saturated(NamedTuple):
    """A line that is saturated, and what it was held against."""

    trend: Trend
    site: Site
    at: PassSites
    """The last pass that was looked at."""
    open_at: PassSites | None
    """The last pass seen in which it was open; None: it was not, in none that was looked at."""
    since: PassSites
    """The first pass seen in which it was saturated."""
    now: float
    """The norm of what it lets through over that of what comes."""
    beside: float
    """The same of what it was held against."""
    others: int
    """Lines or calls that it was held against."""


def saturated(run: RunSaturation) -> list[Saturated]:
    """The lines of a run that are saturated, those told first that others may follow from.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    if not run.passes:
        return []
    last = run.passes[-1]
    found = [each for key in last.sites if (each := _judged(run, key)) is not None]
    order: Sequence[Trend] = ("passes", "siblings", "calls", "start")
    return sorted(found, key=lambda each: (each.since.graph_task, order.index(each.trend)))


def _judged(run: RunSaturation, key: SiteKey) -> Saturated | None:
    """Whether one line is, and how that is known; the first trend that fits."""
    return next(
        (
            found
            for trend in (_OF_CLAMPS if key.function == CLAMP else _TRENDS)
            for found in trend(run, key)
        ),
        None,
    )


def _over_passes(run: RunSaturation, key: SiteKey) -> Iterator[Saturated]:
    seen = [each for each in run.passes if key in each.sites]
    if len(seen) < 3 or max(each.sites[key].median for each in seen[-2:]) > RIM:
        return
    far = [each.sites[key].median for each in seen]
    opened = [place for place, each in enumerate(far) if each >= _TIMES * far[-1] and each > RIM]
    if not opened or run.is_learning(seen[opened[0]].graph_task):
        return
    first = max(place for place, each in enumerate(far) if each > RIM)
    before, since = _narrowed(run, key, seen[first], seen[first + 1])
    site = seen[-1].sites[key]
    widest = max(seen[place].sites[key].slope for place in opened)
    yield Saturated("passes", site, seen[-1], before, since, site.slope, widest, 0)


def _narrowed(
    run: RunSaturation, key: SiteKey, before: PassSites, since: PassSites
) -> tuple[PassSites, PassSites]:
    """The last pass in which a line was open and the first in which it is not, as far as read."""
    while (middle := run.between(before.graph_task, since.graph_task)) is not None:
        read = run.read(middle)
        if key not in read.sites:
            break
        if read.sites[key].median > RIM:
            before = read
        else:
            since = read
    return before, since


def _over_calls(run: RunSaturation, key: SiteKey) -> Iterator[Saturated]:
    last = run.passes[-1]
    site = last.sites[key]
    calls = len(site.open)
    if calls < _FEWEST_CALLS or run.is_learning(run.passes[0].graph_task):
        return
    early, late = max(site.open[: calls // 4]), median(site.open[calls // 2 :])
    if late <= RIM < early and early >= _TIMES * late:
        slopes = median(site.slopes[calls // 2 :]), max(site.slopes[: calls // 4])
        yield Saturated("calls", site, last, None, _since(run, key), *slopes, calls)


def _beside_siblings(run: RunSaturation, key: SiteKey) -> Iterator[Saturated]:
    last = run.passes[-1]
    if last.sites[key].median > RIM or run.is_learning(run.passes[0].graph_task):
        return
    for each in run.passes:
        siblings = each.siblings(key)
        if key not in each.sites or len(siblings) < _FEWEST_SIBLINGS:
            return
        usual = median(site.median for site in siblings)
        if usual < _TIMES * each.sites[key].median or _is_output(each, key):
            return
    site = last.sites[key]
    usual = median(site.slope for site in siblings)
    yield Saturated("siblings", site, last, None, run.passes[0], site.slope, usual, len(siblings))


def _from_the_start(run: RunSaturation, key: SiteKey) -> Iterator[Saturated]:
    first, last = run.passes[0], run.passes[-1]
    is_first = not run.trace.passes_before(first.graph_task)
    if not is_first or run.trace.optimizer_steps_before(first.graph_task):
        return
    if any(key not in each.sites or each.sites[key].median > RIM for each in run.passes):
        return
    is_clamp = key.function == CLAMP
    if (
        any(each.is_at_the_bottom(key) for each in run.passes)
        if is_clamp
        else _is_output(last, key)
    ):
        return
    if run.is_learning(first.graph_task) and not _is_left_out(run, key):
        return
    site = last.sites[key]
    largest = most(site.nodes[-1]) or 1.0
    # A mask, or a gate that picks, leaves one entry on purpose: that alone is no saturation.
    if key.function == "softmax" and site.slope * _TIMES > largest:
        return
    slope = first.sites[key].slope
    yield Saturated("start", site, last, None, first, slope, largest, len(site.open))


def _is_left_out(run: RunSaturation, key: SiteKey) -> bool:
    """Note [What learns without it]."""
    return key.function in {"sigmoid", "tanh"} and all(
        each.sites[key].median <= SHUT and each.feeds_layers(key) for each in run.passes
    )


def _since(run: RunSaturation, key: SiteKey) -> PassSites:
    return next(each for each in run.passes if key in each.sites)


def _is_output(at: PassSites, key: SiteKey) -> bool:
    """Whether nothing learns but through it."""
    reached, leaves = at.reached(key)
    return len(reached) == leaves


_OF_CLAMPS: Final = (_from_the_start,)
_TRENDS: Final = (_over_passes, _over_calls, _beside_siblings, _from_the_start)
