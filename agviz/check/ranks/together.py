"""The folder that ranks leave their notes in, and what is found in it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from agviz.analysis.outcome import Outcome
from agviz.analysis.source import source_line
from agviz.analysis.verdict import Verdict
from agviz.check.ranks.comparing import RanksAnswer, compare_ranks
from agviz.check.ranks.notes import RankNotes, decoded, encoded
from agviz.check.ranks.words import verdicts_of_ranks
from agviz.check.report import CheckReport, worst
from agviz.ranks.answers.found import numbers

if TYPE_CHECKING:
    from pathlib import Path

_ENDING: Final = ".safetensors"


@dataclass
class TogetherReport:
    """What was found in each rank alone, and beside each other."""

    verdicts: list[Verdict]
    looked_at: dict[str, Any]
    """Of the first rank: as :meth:`CheckReport.as_json`."""
    ranks: int
    """That were compared; 0: none."""
    not_ranks: str
    """Why not."""
    failed: bool
    """Whether the program failed in one of them."""

    @property
    def outcome(self) -> Outcome:
        """The worst one."""
        return worst(self.verdicts)

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            **self.looked_at,
            "outcome": str(self.outcome),
            "verdicts": [verdict.as_json() for verdict in self.verdicts],
            "ranks": self.ranks,
            "not_ranks": self.not_ranks or None,
        }


def leave(folder: Path, rank: int, notes: RankNotes, report: CheckReport, *, failed: bool) -> None:
    """Write what a rank leaves.

    Raises:
        OSError: it can't be written.
    """
    lines = [verdict.frame for verdict in report.verdicts]
    full = replace(notes, report=report.as_json(), lines=lines, failed=failed)
    (folder / f"{rank}{_ENDING}").write_bytes(encoded(full))


def read_together(folder: Path, ranks: int) -> TogetherReport:
    """What ranks have left, compared.

    Args:
        folder: where they left it.
        ranks: how many there were.

    Raises:
        agviz.errors.AgvizError: a file is damaged.
    """
    files = {rank: folder / f"{rank}{_ENDING}" for rank in range(ranks)}
    there = {rank: decoded(path.read_bytes()) for rank, path in files.items() if path.exists()}
    missing = [rank for rank in files if rank not in there]
    if missing:
        answer = RanksAnswer(ranks, why_not=f"{numbers(missing)} did not come to the end")
    else:
        answer = compare_ranks(list(there.values()))
    own = _own(there)
    found = [each for each in own if each.outcome is Outcome.FOUND]
    beside = verdicts_of_ranks(answer)
    looked_at = next((each.report for each in there.values()), {})
    verdicts = [*found, *beside] if found else [*beside, *own[:1]]
    return TogetherReport(
        sorted(verdicts, key=lambda each: not each.is_found),
        looked_at,
        0 if answer.why_not else ranks,
        answer.why_not,
        bool(missing) or any(each.failed for each in there.values()),
    )


def _own(there: dict[int, RankNotes]) -> list[Verdict]:
    """What each rank has found alone, once, with the ranks that did."""
    found: dict[tuple[str, str], tuple[Verdict, list[int]]] = {}
    for rank, notes in there.items():
        for facts, frame in zip(notes.report["verdicts"], notes.lines, strict=True):
            verdict = Verdict(
                outcome=Outcome(facts["outcome"]),
                heading=facts["heading"],
                frame=frame,
                source="" if frame is None else source_line(frame),
                paragraph=facts["paragraph"],
            )
            found.setdefault((verdict.heading, verdict.line), (verdict, []))[1].append(rank)
    return [
        verdict
        if len(ranks) == len(there)
        else replace(verdict, heading=f"{numbers(ranks)}: {verdict.heading}")
        for verdict, ranks in found.values()
    ]
