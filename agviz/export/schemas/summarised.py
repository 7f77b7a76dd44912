"""Schemas of what ``agviz summary`` says."""

from __future__ import annotations

from typing import Final

from agviz.analysis.counters import CounterSeries
from agviz.analysis.coverage import Coverage
from agviz.analysis.origins import OriginKind
from agviz.analysis.pass_marks import PassMark
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
    mapping,
    nullable,
    words,
)
from agviz.export.schemas.rows import row
from agviz.export.schemas.shared import (
    COUNTS,
    GRAPH_TASK,
    LINE,
    NODE,
    NS,
    NULLABLE_INTEGER,
    NULLABLE_TEXT,
    verdicts,
)
from agviz.ranks.clocks import Clock
from agviz.ranks.work import PHASES
from agviz.traces.left_out import LeftOut
from agviz.traces.rows import GraphTaskStatus, HookTime, TypeTime

_NAMES: Final = {
    "node": NODE,
    "name": TEXT,
    "module": NULLABLE_TEXT,
    "parameter": NULLABLE_TEXT,
    "line": LINE,
}


def summary() -> Schema:
    """Of ``agviz summary FILE --json``."""
    return document(
        "summary",
        "agviz summary FILE --json",
        "What a recording holds, and where its time went. Times are in ns.",
        {
            "file": TEXT,
            "script": TEXT,
            "argv": array(TEXT),
            **{name: about(TEXT, "Version.") for name in ("python", "torch", "agviz")},
            "engine": about(TEXT, "`exact`, `native`, or empty: none was at work."),
            "withdrawn": about(TEXT, "A sentence where inference was withdrawn; else empty."),
            "complete": about(TRUTH, "Whether it was recorded to its end."),
            "stopped": about(TEXT, "Why the recording stopped; empty: it did not."),
            "choice": about(TEXT, "What was recorded where not all was; else empty."),
            "coverage": row(
                Coverage,
                left_out=array(row(LeftOut)),
                in_words=about(TEXT, "Empty where nothing was left out."),
            ),
            "values": _values(),
            "events": COUNT,
            "graph_tasks": _graph_tasks(),
            "threads": array(_thread()),
            "slowest_types": array(row(TypeTime)),
            "slowest_nodes": array(_slow_node()),
            "hooks": array(row(HookTime)),
            "over_time": about(nullable(_over_time()), "During the slowest pass."),
            "non_finite": array(_nonfinite()),
            "non_finite_passes": array(GRAPH_TASK),
            "verdicts": verdicts(),
            "errors": array(_error()),
        },
        {},
    )


def ranks() -> Schema:
    """Of ``agviz summary FOLDER --json``."""
    times = ("step", *PHASES, "waiting", "transfer", "delayed")
    rank = {
        "rank": INTEGER,
        "host": TEXT,
        "pid": INTEGER,
        "file": TEXT,
        "engine": TEXT,
        "end": about(TEXT, "How its program ended, in words."),
        "error": NULLABLE_TEXT,
        "passes": COUNT,
        "unusual_passes": COUNT,
        "collectives": COUNT,
        "joined_last": about(COUNT, "In how many collectives it was the last to join."),
        **{f"{name}_ns": about(NULLABLE_INTEGER, "Median over passes.") for name in times},
        "clock": row(Clock),
    }
    return document(
        "summary-ranks",
        "agviz summary FOLDER --json",
        "What each rank of a run did. Times are in ns.",
        {
            "folder": TEXT,
            "world_size": COUNT,
            "missing": about(array(INTEGER), "Ranks that left no trace."),
            "common_collectives": COUNT,
            "ranks": array(fields(rank)),
        },
        {},
    )


def _values() -> Schema:
    more = {
        "ended": about(TEXT, "Why later ones are not recorded; empty: they are."),
        "stored": about(COUNT, "Gradients."),
        "nbytes": about(COUNT, "Of all of them."),
        "left_out": about(mapping(COUNT), "How many, by reason."),
    }
    level = about(TEXT, "`none`, `health` or `full`, with which the rest is there.")
    return fields({"level": level, **more}, optional=more)


def _graph_tasks() -> Schema:
    shown = {
        "graph_task": GRAPH_TASK,
        "parent": NULLABLE_INTEGER,
        "call": words(["backward", "grad"]),
        "traced": TRUTH,
        "nodes": COUNT,
        "edges": COUNT,
        "executed": COUNT,
        "duration_ns": NULLABLE_INTEGER,
        "status": words(GraphTaskStatus),
        "withdrawn": TRUTH,
        "mark": nullable(words(PassMark)),
    }
    return fields(
        {
            "count": COUNT,
            "reentrant": COUNT,
            "failed": COUNT,
            "total_ns": NS,
            "shown": array(fields(shown)),
        }
    )


def _thread() -> Schema:
    return fields(
        {
            "thread": INTEGER,
            "name": TEXT,
            "queue": about(NULLABLE_INTEGER, "Device index; -1: it calls backward."),
            "executed": COUNT,
            "busy_ns": NS,
            "utilisation": about(nullable(NUMBER), "Part of the time of all passes."),
        }
    )


def _slow_node() -> Schema:
    return fields(
        {
            "graph_task": GRAPH_TASK,
            "order": INTEGER,
            **_NAMES,
            "thread": INTEGER,
            "duration_ns": NS,
        }
    )


def _over_time() -> Schema:
    return fields(
        {
            "graph_task": GRAPH_TASK,
            "duration_ns": NULLABLE_INTEGER,
            "gauges": array(row(CounterSeries)),
            "contradiction": about(NULLABLE_TEXT, "Why these figures are false."),
        }
    )


def _nonfinite() -> Schema:
    first = {
        "graph_task": GRAPH_TASK,
        **_NAMES,
        "order": NULLABLE_INTEGER,
        "kind": words(OriginKind),
        "output": NULLABLE_INTEGER,
        **COUNTS,
    }
    return fields(
        {
            "graph_task": GRAPH_TASK,
            "first": fields(first),
            "nodes": about(COUNT, "Through how many it spread."),
            "leaves": about(COUNT, "Parameters in all."),
            "reached": about(array(TEXT), "Parameters."),
        }
    )


def _error() -> Schema:
    return fields(
        {
            "graph_task": GRAPH_TASK,
            "error": about(TEXT, "Type of the exception."),
            "message": TEXT,
            "nodes": array(fields(_NAMES)),
            "why": about(NULLABLE_TEXT, "Where more than the message is known."),
        }
    )
