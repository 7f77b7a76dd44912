"""What several documents have in common."""

from __future__ import annotations

from typing import Any, Final

from agviz.analysis.outcome import Outcome
from agviz.export.schemas.parts import (
    COUNT,
    INTEGER,
    TEXT,
    Schema,
    about,
    array,
    fields,
    mapping,
    nullable,
    ref,
    words,
)
from agviz.export.schemas.rows import row
from agviz.measure.values import Health

GRAPH_TASK: Final = about(INTEGER, "A call of backward or grad, by its number.")
NODE: Final = about(INTEGER, "Its number in its graph task.")
NS: Final = about(INTEGER, "In ns.")
OUTCOME: Final = words(Outcome)
NULLABLE_TEXT: Final = nullable(TEXT)
NULLABLE_INTEGER: Final = nullable(INTEGER)
LINE: Final = about(NULLABLE_TEXT, "Of the program, like `train.py:42 in forward`.")

HEALTH: Final = row(Health)
VERDICT: Final[Schema] = {
    "outcome": OUTCOME,
    "heading": about(TEXT, "One sentence."),
    "graph_task": about(NULLABLE_INTEGER, "Which it is about; null: the whole recording."),
    "line": LINE,
    "source": about(NULLABLE_TEXT, "Text of that line."),
    "paragraph": about(TEXT, "What happened and what to do, or what was looked at."),
}
"""Fields of what is said."""


def verdicts(more: dict[str, Any] | None = None) -> Schema:
    """A list of what is said, the worst first."""
    return about(array(fields({**VERDICT, **(more or {})})), "The worst first; never empty.")


GRADIENT: Final = about(nullable(ref("health")), "Null: not measured.")
DEFINED_HEALTH: Final = {"health": about(HEALTH, "What was measured of a tensor.")}
COUNTS: Final = {"nan": COUNT, "posinf": COUNT, "neginf": COUNT}
SHAPE: Final = array(INTEGER)
BY_NAME: Final = mapping(TEXT)
