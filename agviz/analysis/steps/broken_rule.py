"""A rule that raised: what it looks for can't be said, and what others found is kept."""

from __future__ import annotations

import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agviz.analysis.steps.finding import StepFinding
from agviz.errors import AgvizError

if TYPE_CHECKING:
    from collections.abc import Iterator

BROKEN: Final = "broken rule"
"""The kind of such a finding."""
_MOST_WORDS: Final = 12
"""Of what was raised."""


@contextmanager
def kept_apart(broken: list[StepFinding]) -> Iterator[None]:
    """Put what a rule raises, called within, among broken ones: what others found is not lost."""
    try:
        yield
    except AgvizError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a rule raises
        broken.append(_broken_rule(error))


def _broken_rule(error: Exception) -> StepFinding:
    """What is to be said of a rule by what it raised: behind the guard's frame and its caller's."""
    _, _, *inside = traceback.extract_tb(error.__traceback__)
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
