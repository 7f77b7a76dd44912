"""What is said of one rank's recording, as said of the run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agviz.analysis.verdict import Verdict


def of_rank(rank: int, verdict: Verdict, *, beside: str = "") -> Verdict:
    """The same verdict, with its rank.

    Args:
        rank: the rank.
        verdict: on its recording.
        beside: what is to be said of the others.
    """
    return replace(
        verdict,
        heading=f"rank {rank}: {verdict.heading}",
        paragraph=f"{verdict.paragraph} {beside}".strip(),
    )
