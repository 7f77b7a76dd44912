"""A rule that raised: what it looks for can't be said, and what others found is kept."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Final

from agviz.analysis.steps.finding import StepFinding

BROKEN: Final = "broken rule"
"""The kind of such a finding."""
_MOST_WORDS: Final = 12
"""Of what was raised."""


def broken_rule(error: Exception) -> StepFinding:
    """What is to be said of a rule by what it raised to the function that had called it."""
    _, *inside = traceback.extract_tb(error.__traceback__)
    name = inside[0].name.lstrip("_").replace("_", " ") if inside else "unknown"
    at = f" at {Path(inside[-1].filename).name}:{inside[-1].lineno}" if inside else ""
    said = " ".join(str(error).split()[:_MOST_WORDS])
    return StepFinding(
        kind=BROKEN,
        heading=f'agviz itself failed in one of its rules, "{name}"',
        frame=None,
        paragraph=(
            f"It raised {type(error).__name__}{at}: {said}. What that rule looks for can't be said"
            " of this run; whatever the other rules found is unchanged. Please report it: agviz"
            " issue FILE writes a report to send."
        ),
    )
