"""Schemas of the smaller documents: estimates, reports about programs, what was written."""

from __future__ import annotations

from typing import Final

from agviz.analysis.schedule import ORDERS, ThreadCourse
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
    words,
)
from agviz.export.schemas.rows import row
from agviz.export.schemas.shared import BY_NAME, GRAPH_TASK, NS, OUTCOME, verdicts
from agviz.ranks.whatif import Estimate

_PROGRAM: Final = {
    "agviz": about(TEXT, "Version."),
    "script": TEXT,
    "argv": array(TEXT),
    "failed": about(TRUTH, "Whether the script did."),
}


def whatif() -> Schema:
    """Of ``agviz whatif FILE --json``."""
    order = {
        "order": words(ORDERS),
        "peak_bytes": COUNT,
        "makespan_ns": NS,
        "threads": array(row(ThreadCourse)),
        "bytes_over_time": array(INTEGER),
        "step_ns": about(NUMBER, "Between two figures of `bytes_over_time`."),
        "nodes": array(INTEGER),
    }
    return document(
        "whatif",
        "agviz whatif FILE --json",
        "What a backward pass would hold in memory under other queue orders.",
        {
            "file": TEXT,
            "graph_task": GRAPH_TASK,
            "nodes": COUNT,
            "executed": COUNT,
            "recorded": fields({"peak_bytes": COUNT, "makespan_ns": NS}),
            "orders": array(fields(order)),
            "threads": about(BY_NAME, "Names, by queue; -1: the thread that calls backward."),
            "unknown": about(array(TEXT), "What a simulation can't know, in sentences."),
        },
        {},
    )


def estimates() -> Schema:
    """Of ``agviz whatif FOLDER --json``."""
    gain = about(NUMBER, "Part of the time that it would save.")
    return document(
        "whatif-ranks",
        "agviz whatif FOLDER --json",
        "How long a step of many ranks would take if.",
        {
            "estimates": array(row(Estimate, gain=gain)),
            "remark": about(TEXT, "Why there are no more; may be empty."),
        },
        {},
    )


def export() -> Schema:
    """Of ``agviz export … --json``."""
    drawn = {
        "graph_tasks": about(array(INTEGER), "Those that are drawn."),
        "nodes": COUNT,
        "edges": COUNT,
    }
    return document(
        "export",
        "agviz export FILE --format svg --json",
        "What was written.",
        {
            "format": TEXT,
            "path": TEXT,
            "notes": about(array(TEXT), "What is to be said of it, in sentences."),
            **drawn,
        },
        {},
        optional=drawn,
    )


def repro() -> Schema:
    """Of ``agviz repro FILE --json``."""
    return document(
        "repro",
        "agviz repro FILE --json",
        "The files that run one node alone.",
        {
            "script": TEXT,
            "tensors": TEXT,
            "replaced": about(array(TEXT), "Files that were there before."),
            "node": about(TEXT, "Its name."),
            "graph_task": GRAPH_TASK,
            "order": nullable(INTEGER),
            "calls": about(COUNT, "Of ATen."),
            "nbytes": about(COUNT, "Of tensors."),
            "same_bits": about(nullable(TRUTH), "In a fresh process; null: not checked."),
        },
        {},
    )


def check() -> Schema:
    """Of ``agviz check --json script.py``."""
    looked_at = {
        "passes": about(COUNT, "Calls of backward and grad."),
        "saved_tensors": about(COUNT, "That were looked at again when backward began."),
        "functions": about(COUNT, "That were held against numerical derivatives."),
        "not_judged": about(BY_NAME, "Custom Functions, and why."),
        "checkpoints": about(COUNT, "Recomputations that were held against their forward."),
        "in_double": about(COUNT, "Passes that were computed again in float64."),
        "not_in_double": about(nullable(TEXT), "Why one was not."),
        "compiled": about(COUNT, "Passes that were compiled and run again."),
        "not_compiled": about(nullable(TEXT), "Why one was not, though it was asked for."),
        "ranks": about(COUNT, "That were compared, with --ranks; 0: none."),
        "not_ranks": about(nullable(TEXT), "Why not, with --ranks."),
    }
    return document(
        "check",
        "agviz check --json script.py",
        "Whether the gradients of a program are right. Counts are missing where it used no torch;"
        " with --ranks, those of rank 0.",
        {**_PROGRAM, "outcome": OUTCOME, "verdicts": verdicts(), **looked_at},
        {},
        optional=looked_at,
    )


def verify() -> Schema:
    """Of ``agviz verify --json script.py``."""
    difference = {
        "kind": words(["gradient", "order", "exception"]),
        "where": TEXT,
        "native": TEXT,
        "agviz": TEXT,
        "note": TEXT,
    }
    finding = fields(
        {
            "number": about(COUNT, "Among the passes of the program, from 0."),
            "call": words(["backward", "grad"]),
            "place": about(TEXT, "File and line that called it."),
            "outcome": words(_COMPARED),
            "nodes": COUNT,
            "reentrant": COUNT,
            "gradients": about(COUNT, "Tensors that were compared."),
            "hooks": COUNT,
            "order_compared": TRUTH,
            "raised": about(TEXT, "The exception that both engines raised; else empty."),
            "reason": about(TEXT, "Why it was not compared; else empty."),
            "differences": array(fields(difference)),
        }
    )
    return document(
        "verify",
        "agviz verify --json script.py",
        "Whether agviz's engine gives the gradients and order of torch's.",
        {
            **_PROGRAM,
            "refused": about(TEXT, "Why nothing is compared; else empty."),
            "passes": COUNT,
            "reentrant": COUNT,
            **{outcome.replace(" ", "_"): about(COUNT, "Passes.") for outcome in _COMPARED},
            "gradients": COUNT,
            "hook_calls": COUNT,
            "first_difference": nullable(finding),
            "findings": array(finding),
        },
        {},
    )


_COMPARED: Final = ("equal", "different", "not comparable", "not compared")


def doctor() -> Schema:
    """Of ``agviz doctor --json``."""
    finding = {"subject": TEXT, "ok": TRUTH, "found": TEXT, "remedy": TEXT}
    return document(
        "doctor",
        "agviz doctor --json",
        "What is installed, and how to get what is missing.",
        {"agviz": about(TEXT, "Version."), "findings": array(fields(finding))},
        {},
    )
