"""Schema of a whole trace."""

from __future__ import annotations

from typing import Final

from agviz.export.schemas.parts import (
    COUNT,
    INTEGER,
    TEXT,
    TRUTH,
    Schema,
    about,
    array,
    document,
    fields,
    kinds,
    nullable,
    pair,
    ref,
    words,
)
from agviz.export.schemas.rows import row
from agviz.export.schemas.shared import DEFINED_HEALTH, LINE, SHAPE
from agviz.traces.rows import (
    EdgeRow,
    ForwardOpRow,
    ForwardTensorRow,
    Frame,
    GraphTaskRow,
    GraphTaskStatus,
    Meta,
    NodeRow,
    NodeStatus,
    NonFiniteRow,
    ParameterRow,
    Rank,
    SavedHealthRow,
    SavedRow,
    ThreadRow,
)
from agviz_engine.events import EVENT_TYPES

_STACK: Final = about(nullable(INTEGER), "Position in the list of stacks; null: not known.")
_TIMES: Final = "Times count from the start of the recording, in ns."


def trace() -> Schema:
    """Of ``agviz export --format json``."""
    stack = array(row(Frame, without=("source",)))
    return document(
        "trace",
        "agviz export --format json",
        f"All that a trace holds. {_TIMES}",
        {
            "format": {"const": "agviz"},
            "meta": row(Meta, rank=nullable(row(Rank))),
            "threads": array(row(ThreadRow)),
            "graph_tasks": array(_graph_task(stack)),
            "events": array(_event()),
            "forward": array(_forward_op()),
            "forward_stacks": array(stack),
            "findings": array(_finding()),
        },
        DEFINED_HEALTH,
    )


def _graph_task(stack: Schema) -> Schema:
    counts = {"node_count": COUNT, "edge_count": COUNT}
    status = words(GraphTaskStatus)
    plain = row(GraphTaskRow, without=("nodes", "edges"), status=status, **counts)
    saved_health = row(SavedHealthRow, health=nullable(ref("health")))
    return fields(
        {
            **plain["properties"],
            "nodes": array(_node()),
            "edges": array(row(EdgeRow)),
            "stacks": array(stack),
            "saved": array(row(SavedRow)),
            "saved_health": array(saved_health),
            "parameters": array(row(ParameterRow)),
        }
    )


def _node() -> Schema:
    return row(
        NodeRow,
        stack=_STACK,
        status=words(NodeStatus),
        input_shapes=nullable(array(SHAPE)),
        output_shapes=array(nullable(SHAPE)),
        nonfinite=nullable(array(COUNT)),
        line=LINE,
    )


def _event() -> Schema:
    inferred = about(TRUTH, "There, and true, where torch's own engine ran and it is inferred.")
    options = {}
    for of in EVENT_TYPES:
        named = row(of)["properties"]
        plain = {"which" if name == "kind" else name: named[name] for name in named}
        options[of.__name__] = fields({**plain, "inferred": inferred}, optional=["inferred"])
    return kinds(options)


def _forward_op() -> Schema:
    tensor = row(ForwardTensorRow, health=nullable(ref("health")))
    return row(
        ForwardOpRow,
        stack=_STACK,
        sequence_nrs=pair(INTEGER, INTEGER),
        inputs=array(tensor),
        outputs=array(tensor),
        line=LINE,
    )


def _finding() -> Schema:
    failure = {
        "graph_task": INTEGER,
        "error": about(TEXT, "Type of the exception."),
        "message": TEXT,
        "nodes": about(array(INTEGER), "Those that failed."),
    }
    return kinds({"non_finite": row(NonFiniteRow), "failure": fields(failure)})
