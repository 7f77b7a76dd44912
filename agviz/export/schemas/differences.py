"""Schemas of what ``agviz diff`` says."""

from __future__ import annotations

from typing import Final

from agviz.analysis.diff_rows import DivergenceKind, Level
from agviz.export.schemas.parts import (
    COUNT,
    INTEGER,
    NUMBER,
    TEXT,
    TRUTH,
    Schema,
    about,
    array,
    document,
    fields,
    nullable,
    pair,
    ref,
    words,
)
from agviz.export.schemas.rows import row
from agviz.export.schemas.shared import (
    GRAPH_TASK,
    LINE,
    NODE,
    NS,
    NULLABLE_INTEGER,
    NULLABLE_TEXT,
    OUTCOME,
)
from agviz.traces.health import HealthRow
from agviz.traces.rows import GraphTaskStatus, NodeStatus

_NUMBER: Final = about(
    {"anyOf": [NUMBER, words(["inf", "-inf", "nan"]), {"type": "null"}]},
    "A text where it is not finite.",
)
_SIDES: Final = "In A and in B."
_DIVERGENCE: Final = {
    "kind": words(DivergenceKind),
    "a": about(nullable(ref("node")), "Null: it is in B only."),
    "b": nullable(ref("node")),
    "is_first": about(TRUTH, "Whether nothing diverges in what the node was given."),
    "role": about(TEXT, "Of a gradient: `output`, `sum`, …; else empty."),
    "slot": INTEGER,
    "facts": about(array(TEXT), "Which figures differ."),
    "health_a": nullable(ref("health")),
    "health_b": nullable(ref("health")),
    "largest": about(_NUMBER, "Largest difference of two elements."),
}


def diff() -> Schema:
    """Of ``agviz diff A B --json`` for two traces."""
    return document(
        "diff", "agviz diff A B --json", "Where two recordings part.", _compared(), _defined()
    )


def folders() -> Schema:
    """Of ``agviz diff A B --json`` for two folders."""
    return document(
        "diff-folders",
        "agviz diff FOLDER FOLDER --json",
        "Where the recordings of two folders part, pair by pair.",
        {"pairs": array(fields(_compared()))},
        _defined(),
    )


def ranks() -> Schema:
    """Of ``agviz diff FOLDER --json``."""
    extreme = fields({"rank": INTEGER, "ns": NS})
    times = {"what": TEXT, "median_ns": NS, "least": extreme, "most": extreme}
    said = ("graphs", "collectives", "order_of_collectives", "parameters")
    return document(
        "diff-ranks",
        "agviz diff FOLDER --json",
        "In what ranks differ that should be alike.",
        {
            "folder": TEXT,
            **{name: about(NULLABLE_TEXT, "A sentence; null: they do not.") for name in said},
            "times": array(fields(times)),
        },
        {},
    )


def _compared() -> dict[str, Schema]:
    first = {"graph_tasks": pair(INTEGER, INTEGER), **_DIVERGENCE}
    return {
        "a": about(TEXT, "File."),
        "b": TEXT,
        "same": TRUTH,
        "outcome": OUTCOME,
        "wrong_in_a": about(array(TEXT), "What went wrong in it, whether they differ or not."),
        "wrong_in_b": array(TEXT),
        "rtol": NUMBER,
        "atol": NUMBER,
        "answer": TEXT,
        "first": nullable(fields(first)),
        "graph_tasks": array(_passes()),
        "only_in_a": array(GRAPH_TASK),
        "only_in_b": array(GRAPH_TASK),
    }


def _passes() -> Schema:
    task = {
        "graph_task": GRAPH_TASK,
        "parent": NULLABLE_INTEGER,
        "nodes": COUNT,
        "status": words(GraphTaskStatus),
    }
    change = {"a": ref("node"), "b": ref("node"), "what": TEXT, "in_a": TEXT, "in_b": TEXT}
    either = nullable(ref("node"))
    return fields(
        {
            "a": fields(task),
            "b": fields(task),
            "same": TRUTH,
            "level": words(Level),
            "aligned": COUNT,
            "gradients": COUNT,
            "elements": COUNT,
            "unknown": COUNT,
            "diverged": COUNT,
            "divergences": array(fields(_DIVERGENCE)),
            "reached": about(array(ref("node")), "Parameters whose gradient is not the same."),
            "leaves": COUNT,
            "only_in_a": array(ref("node")),
            "only_in_b": array(ref("node")),
            "changes": array(fields(change)),
            "nonfinite": about(pair(either, either), _SIDES),
            "ended": about(nullable(pair(TEXT, TEXT)), _SIDES),
            "other_order": about(nullable(pair(ref("node"), ref("node"))), _SIDES),
        }
    )


def _defined() -> dict[str, Schema]:
    figures = ("min", "max", "mean", "norm")
    health = row(
        HealthRow,
        without=("graph_task", "node", "role", "slot", "seq", "nbytes", "numbers"),
        **dict.fromkeys(figures, _NUMBER),
    )
    node = {
        "node": NODE,
        "name": TEXT,
        "module": NULLABLE_TEXT,
        "parameter": NULLABLE_TEXT,
        "line": LINE,
        "order": NULLABLE_INTEGER,
        "status": words(NodeStatus),
    }
    return {"health": about(health, "What was measured."), "node": fields(node)}
