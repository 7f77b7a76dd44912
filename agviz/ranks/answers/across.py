"""What is to be said of a run: one of the three outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.analysis.outcome import Outcome
from agviz.analysis.verdict import Verdict
from agviz.ranks.answers.collectives import exchanged, mismatch, recalled, reordered, skipped
from agviz.ranks.answers.ends import End, ends
from agviz.ranks.answers.found import RankVerdict, numbers
from agviz.ranks.answers.gradients import unequal
from agviz.ranks.answers.graphs import parting
from agviz.ranks.answers.nonfinite import nonfinite
from agviz.ranks.answers.rates import apart as apart_in_rate
from agviz.ranks.answers.same_data import same_data
from agviz.ranks.answers.scales import out_of_scale
from agviz.ranks.answers.straggler import straggler
from agviz.ranks.answers.summed import summed
from agviz.ranks.answers.unfinished import unfinished
from agviz.ranks.work import own_times_of_passes
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agviz.ranks.answers.ends import RankEnd
    from agviz.ranks.run import Run


def rank_verdicts(run: Run) -> tuple[RankVerdict, ...]:
    """What is to be said of a run, what ended it first; never nothing.

    Raises:
        agviz.errors.TraceError: a file is damaged.
    """
    ended = ends(run)
    found = tuple(_found(run, ended))
    if not found:
        found = tuple(filter(None, (out_of_scale(run), summed(run), same_data(run))))
    return found or (_nothing(run, ended),)


def _found(run: Run, ended: Mapping[int, RankEnd]) -> Iterator[RankVerdict]:
    differ = mismatch(run)
    if (left := skipped(run)) is not None:
        yield left  # the ranks are out of step from there on, however that ends
        return
    has_failed = any(one.end not in {End.REGULAR, End.GROWING} for one in ended.values())
    wrong = unfinished(run, ended, parting(run) if has_failed else None, differ)
    if wrong is not None:
        yield wrong
    elif differ is not None and differ.is_other:
        yield reordered(run, differ)
    rates = None if wrong is not None else apart_in_rate(run)
    late = straggler(run, own_times_of_passes(run))
    mixed = recalled(run) if wrong is None and differ is None else None
    if wrong is None and differ is None and (mixed is None or not mixed.verdict.is_found):
        mixed = exchanged(run) or mixed
    # Where ranks did not come to their end, gradients of the last passes were never reduced.
    apart = unequal(run) if wrong is None and rates is None else None
    answers = filter(None, (mixed, nonfinite(run), rates, apart, late))
    yield from sorted(answers, key=lambda answer: not answer.verdict.is_found)


_GOOD: Final = (
    "All ranks came to their end, joined the same collectives, and what was measured is finite; no"
    " rank lets the others wait again and again."
)


def _nothing(run: Run, ended: Mapping[int, RankEnd]) -> RankVerdict:
    passes = sum(len(rank.passes) for rank in run.ranks.values())
    folder = run.folder
    running = [rank for rank, one in ended.items() if one.end is End.GROWING]
    is_short = bool(folder.missing) or not passes
    said = [_GOOD]
    if running:
        said = [f"{numbers(running).capitalize()} {'is' if len(running) == 1 else 'are'} running."]
    if folder.missing:
        said.append(f"{numbers(folder.missing).capitalize()} left no trace here.")
    if not any(rank.joined for rank in run.ranks.values()):
        said.append(
            "No collective was recorded: this torch has no flight recorder for the backend, or the"
            " program calls none."
        )
    said.append("Not looked at: whether the gradients are right, and what is beyond backward.")
    return RankVerdict(
        kind="",
        ranks=(),
        verdict=Verdict(
            outcome=Outcome.CANT_TELL if is_short else Outcome.NOTHING_UNUSUAL,
            heading=(
                f"nothing unusual in {plural(passes, 'backward pass', 'backward passes')} of"
                f" {plural(len(run.ranks), 'rank')}"
                if passes
                else "no backward pass was recorded"
            ),
            paragraph=" ".join(said),
            verb="view",
        ),
    )
