"""Schemas of what ``agviz why`` says."""

from __future__ import annotations

from typing import get_args

from agviz.analysis.causes import Cause
from agviz.analysis.gradients import GradientRow, GradientWord
from agviz.export.schemas.parts import (
    NUMBER,
    TEXT,
    TRUTH,
    Schema,
    about,
    array,
    document,
    mapping,
    nullable,
    words,
)
from agviz.export.schemas.rows import row
from agviz.export.schemas.shared import OUTCOME


def why() -> Schema:
    """Of ``agviz why FILE --json``."""
    return document(
        "why",
        "agviz why FILE --json",
        "What became of the gradients of parameters.",
        {
            "verdict": about(TEXT, "One sentence."),
            "outcome": OUTCOME,
            "is_fine": TRUTH,
            "doubt": about(TEXT, "What is not known; may be empty."),
            "hint": about(TEXT, "How to learn more; may be empty."),
            "parameters": array(_parameter()),
        },
        {},
    )


def ranks() -> Schema:
    """Of ``agviz why FOLDER PARAM --json``."""
    return document(
        "why-ranks",
        "agviz why FOLDER PARAM --json",
        "What became of the gradient of a parameter on all ranks.",
        {
            "parameter": TEXT,
            "ranks": about(mapping(array(_parameter())), "By number of the rank."),
            "unequal": about(TRUTH, "Whether the parameter is not the same on all ranks."),
        },
        {},
    )


def _parameter() -> Schema:
    return row(
        GradientRow,
        without=("frame", "beside", "advice"),
        gradient=words(get_args(GradientWord)),
        norm=about({"anyOf": [NUMBER, words(["inf"]), {"type": "null"}]}, "A text if infinite."),
        cause=nullable(about(TEXT, f"{', '.join(Cause)}; others may come.")),
    )
