"""Schemas of what ``agviz explain`` says."""

from __future__ import annotations

from typing import Final

from agviz.analysis.explanation import ForwardState
from agviz.analysis.loss_scale import Skipped
from agviz.analysis.origins import OriginKind
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
    kinds,
    nullable,
    pair,
    words,
)
from agviz.export.schemas.rows import row
from agviz.export.schemas.shared import (
    DEFINED_HEALTH,
    GRADIENT,
    GRAPH_TASK,
    LINE,
    NODE,
    NS,
    NULLABLE_INTEGER,
    NULLABLE_TEXT,
    SHAPE,
    verdicts,
)
from agviz.traces.rows import VersionErrorRow

_COORDINATES: Final = fields(
    {
        "what": about(TEXT, "`token`, `pixel`, `step`, `channel`, …"),
        "at": array(INTEGER),
        "of": about(array(INTEGER), "Sizes of the axis, or axes."),
    }
)
_ELEMENTS: Final = about(
    fields(
        {
            "sample": about(array(INTEGER), "Numbers of samples; empty: not known, or all."),
            "position": array(_COORDINATES),
            "column": nullable(_COORDINATES),
            "index": about(TEXT, "Of the tensor, like `[17, :, 3]`; empty: all of it."),
            "shape": SHAPE,
            "count": about(COUNT, "Elements in all."),
            "all": about(TRUTH, "Whether these are all that are not finite."),
            "met": about(TRUTH, "Whether a node met what the forward began."),
        }
    ),
    "Which sample, token or pixel.",
)
_WHERE: Final = {"name": TEXT, "module": NULLABLE_TEXT, "line": LINE}
_NODES: Final = array(INTEGER)
_FRAMES: Final = about(array(TEXT), "Outermost first.")


def explain() -> Schema:
    """Of ``agviz explain FILE --json``."""
    return document(
        "explain",
        "agviz explain FILE --json",
        "What went wrong in a recording, and why.",
        {
            "file": TEXT,
            "engine": about(TEXT, "`exact`, `native`, or empty: none was at work."),
            "withdrawn": about(TEXT, "A sentence where inference was withdrawn; else empty."),
            "verdicts": verdicts(),
            "explanation": about(nullable(_explanation()), "Of gradients that are not finite."),
            "failure": about(
                {"anyOf": [{"type": "null"}, kinds(_failures()), _step(), _saturation()]},
                "What the first other verdict rests on.",
            ),
        },
        DEFINED_HEALTH,
    )


def element() -> Schema:
    """Of ``agviz explain FILE --element NODE --json``."""
    return document(
        "explain-element",
        "agviz explain FILE --element NODE --json",
        "Where the largest element of what a node put out comes from.",
        {
            "file": TEXT,
            "answer": TEXT,
            "backward_pass": about(TEXT, "In words."),
            "graph_task": GRAPH_TASK,
            "node": NODE,
            "name": TEXT,
            "module": NULLABLE_TEXT,
            "output": INTEGER,
            "line": LINE,
            "source": NULLABLE_TEXT,
            "value": nullable(NUMBER),
            "norm": nullable(NUMBER),
            "elements": _ELEMENTS,
        },
        {},
    )


def ranks() -> Schema:
    """Of ``agviz explain FOLDER --json``."""
    more = {
        "kind": about(NULLABLE_TEXT, "`straggler`, `nonfinite`, …; null: nothing was found."),
        "ranks": about(array(INTEGER), "Those in which the cause is."),
        "node": about(NULLABLE_TEXT, "In words."),
        "details": array(TEXT),
    }
    return document(
        "explain-ranks",
        "agviz explain FOLDER --json",
        "What went wrong in a run of many ranks, and in which.",
        {
            "folder": TEXT,
            "ranks": about(COUNT, "How many left a trace."),
            "missing": about(array(INTEGER), "Those that left none."),
            "verdicts": verdicts(more),
        },
        {},
    )


def _explanation() -> Schema:
    frame = fields({"file": TEXT, "line": INTEGER, "function": TEXT})
    origin = {
        "kind": words(OriginKind),
        "graph_task": GRAPH_TASK,
        "node": NODE,
        "name": TEXT,
        "module": NULLABLE_TEXT,
        "parameter": NULLABLE_TEXT,
        "order": about(NULLABLE_INTEGER, "In the order in which nodes ran, from 1."),
        "thread": NULLABLE_INTEGER,
        "seq": INTEGER,
        "slot": INTEGER,
        "line": LINE,
        "stack": about(array(frame), "Outermost first, without hidden frames."),
    }
    received = {"slot": INTEGER, "producers": array(TEXT), "health": GRADIENT}
    outputs = {"output": INTEGER, "towards": array(TEXT), "health": GRADIENT}
    saved = {"name": TEXT, "parameter": NULLABLE_TEXT, "value": NULLABLE_TEXT, "health": GRADIENT}
    other = {"kind": words(OriginKind), "graph_task": GRAPH_TASK, "node": NODE, "seq": INTEGER}
    return fields(
        {
            "graph_task": GRAPH_TASK,
            "backward_pass": about(TEXT, "In words."),
            "pattern": about(NULLABLE_TEXT, "The known pattern that fits."),
            "reason": NULLABLE_TEXT,
            "remedy": NULLABLE_TEXT,
            "line": LINE,
            "file": NULLABLE_TEXT,
            "line_number": NULLABLE_INTEGER,
            "source": NULLABLE_TEXT,
            "answer": TEXT,
            "origin": fields(origin),
            "first": about(GRADIENT, "What was not finite first."),
            "received": array(fields(received)),
            "outputs": array(fields(outputs)),
            "saved": array(fields(saved)),
            "hooks": array(fields({"kind": TEXT, "name": TEXT, "gave": GRADIENT})),
            "elements": nullable(_ELEMENTS),
            "loss_scale": nullable(NUMBER),
            "partial": about(TRUTH, "Whether nodes around it were left out of the recording."),
            "zeroed_by": NULLABLE_TEXT,
            "norms": array(fields({"name": TEXT, "norm": nullable(NUMBER)})),
            "forward": fields({"state": words(ForwardState), "first": nullable(_blamed())}),
            "nodes": about(COUNT, "Through how many it spread."),
            "reached": about(array(TEXT), "Parameters."),
            "leaves": about(COUNT, "Parameters in all."),
            "captured": about(COUNT, "Results of grad that are not finite."),
            "others": about(array(fields(other)), "Where else it began."),
            "later_graph_tasks": about(COUNT, "How many later ones are not finite."),
            "harmless": TRUTH,
            "skipped": nullable(row(Skipped)),
        }
    )


def _blamed() -> Schema:
    given = {
        "place": TEXT,
        "parameter": NULLABLE_TEXT,
        "made_by": NULLABLE_TEXT,
        "health": GRADIENT,
    }
    return fields(
        {
            "function": TEXT,
            "arguments": TEXT,
            "module": NULLABLE_TEXT,
            "line": LINE,
            "source": words(["function", "data", "parameter"]),
            "parameter": NULLABLE_TEXT,
            "health": GRADIENT,
            "given": array(fields(given)),
        }
    )


def _failures() -> dict[str, Schema]:
    """What a verdict rests on that is not of gradients, by kind."""
    return {
        "modified": fields(_modified()),
        "second_time": fields(_second_time()),
        "raised": fields(_raised()),
        "hang": fields(_hang()),
        "refused": fields(_refused()),
        "outside": fields(_outside()),
        "loss": fields(_loss()),
        "no_progress": fields(
            {"graph_task": GRAPH_TASK, "loop": COUNT, "called": TEXT, "passes": COUNT}
        ),
        "hook_growth": fields(
            {"owner": TEXT, "hook": TEXT, "counts": array(pair(GRAPH_TASK, COUNT))}
        ),
        "graph_growth": fields(
            {
                "cause": TEXT,
                "passes": about(array(pair(GRAPH_TASK, COUNT)), "Graph task, number of nodes."),
                "name": TEXT,
                "carried": LINE,
            }
        ),
        "kept_graphs": fields(
            {
                "graph_task": GRAPH_TASK,
                "passes": COUNT,
                "alive": COUNT,
                "holder": NULLABLE_TEXT,
                "name": NULLABLE_TEXT,
                "reached": NULLABLE_INTEGER,
            }
        ),
        "stored_tensors": fields(
            {"holder": TEXT, "name": TEXT, "more": COUNT, "graph_task": GRAPH_TASK}
        ),
        "longer_tensors": fields(
            {
                "name": TEXT,
                "shapes": about(array(pair(GRAPH_TASK, array(COUNT))), "Graph task, sizes."),
                "is_list": TRUTH,
                "largest": NULLABLE_TEXT,
            }
        ),
        "recomputed": fields(
            {"graph_task": GRAPH_TASK, "computed": LINE, "times": COUNT, "levels": COUNT}
        ),
        "repeated_backward": fields({"calls": COUNT, "ran": COUNT, "nodes": COUNT, "batch": COUNT}),
        "repeated_calls": fields(
            {
                "graph_task": GRAPH_TASK,
                "name": TEXT,
                "computed": LINE,
                "times": COUNT,
                "share": {"type": "number"},
            }
        ),
        "no_use": fields(
            {
                "graph_task": GRAPH_TASK,
                "first": GRAPH_TASK,
                "cause": TEXT,
                "parameters": array(TEXT),
            }
        ),
        "slow_shape": fields(
            {"graph_task": GRAPH_TASK, "writes": TRUTH, "count": COUNT, "nodes": COUNT}
        ),
    }


def _step() -> Schema:
    """The same of what is found in whole steps."""
    return fields(
        {
            "kind": {"type": "string", "pattern": "^step: "},
            "heading": TEXT,
            "line": LINE,
            "paragraph": TEXT,
            "first_graph_task": NULLABLE_INTEGER,
        }
    )


def _saturation() -> Schema:
    """The same of activations that let next to nothing through."""
    return fields(
        {
            "kind": {"type": "string", "pattern": "^saturation: "},
            "heading": TEXT,
            "function": TEXT,
            "module": NULLABLE_TEXT,
            "graph_task": GRAPH_TASK,
            "line": LINE,
            "slope": about(NUMBER, "The norm of what it lets through over that of what comes."),
            "paragraph": TEXT,
        }
    )


def _modified() -> dict[str, Schema]:
    return {
        "graph_task": GRAPH_TASK,
        "node": NODE,
        **_WHERE,
        "saved": nullable(row(VersionErrorRow)),
        "modified_by": array(fields(_WHERE)),
        "last_recorded": NULLABLE_INTEGER,
        "carried_on": about(
            nullable(fields({"graph_task": GRAPH_TASK, "entry": _NODES, "line": LINE})),
            "The earlier pass that went through the node already, and how it goes back into it.",
        ),
        "forward_recorded": TRUTH,
        "message": TEXT,
    }


def _second_time() -> dict[str, Schema]:
    return {
        "graph_task": GRAPH_TASK,
        "node": NODE,
        "name": TEXT,
        "line": LINE,
        "called_at": LINE,
        "released_by": about(NULLABLE_INTEGER, "Graph task; null: not known."),
        "first_called_at": LINE,
        "nodes": COUNT,
        "shared_nodes": COUNT,
        "entry": about(nullable(_NODES), "The nodes by which it goes back into the first graph."),
    }


def _raised() -> dict[str, Schema]:
    return {
        "graph_task": GRAPH_TASK,
        "inner_graph_task": INTEGER,
        "node": NULLABLE_INTEGER,
        "name": NULLABLE_TEXT,
        "hook": NULLABLE_TEXT,
        "hook_kind": NULLABLE_TEXT,
        "line": LINE,
        "error": TEXT,
        "message": TEXT,
        "called_at": LINE,
        "stack": _FRAMES,
    }


def _hang() -> dict[str, Schema]:
    task = {
        "graph_task": GRAPH_TASK,
        "parent": NULLABLE_INTEGER,
        "ran_ns": NS,
        "executed": COUNT,
        "nodes": COUNT,
    }
    stopped = {
        "thread": INTEGER,
        "graph_task": NULLABLE_INTEGER,
        "node": NULLABLE_INTEGER,
        "reason": TEXT,
    }
    node = {"graph_task": GRAPH_TASK, "node": NODE, "name": TEXT}
    call = {"kind": TEXT, **node, "defined_at": LINE}
    wait = {"what": TEXT, "thread": NULLABLE_TEXT, "held_at": LINE}
    thread = {
        "thread": NULLABLE_INTEGER,
        "name": TEXT,
        "held": TRUTH,
        "nodes": array(fields(node)),
        "for_ns": NULLABLE_INTEGER,
        "waits": TRUTH,
        "waits_for": NULLABLE_INTEGER,
        "depth": INTEGER,
        "waits_on": about(nullable(fields(wait)), "A lock, a queue, a thread; who has it."),
        "calls": array(fields(call)),
        "stack": _FRAMES,
    }
    return {
        "graph_task": GRAPH_TASK,
        "graph_tasks": array(fields(task)),
        "called_at": LINE,
        "growing": TRUTH,
        "still_ns": NS,
        "stands_still": TRUTH,
        "recording_stopped": NULLABLE_TEXT,
        "stopped": about(nullable(fields(stopped)), "Where a debugger holds a thread."),
        "stacks_recorded": TRUTH,
        "threads": array(fields(thread)),
        "waiting": array(fields({**node, "missing": _NODES})),
        "knows_all": TRUTH,
    }


def _refused() -> dict[str, Schema]:
    return {
        "after_graph_task": NULLABLE_INTEGER,
        "error": TEXT,
        "message": TEXT,
        "called_at": LINE,
        "grad_enabled": nullable(TRUTH),
        "disabled_at": LINE,
        "cut_at": LINE,
        "line": LINE,
        "calls": COUNT,
    }


def _outside() -> dict[str, Schema]:
    return {
        "after_graph_task": NULLABLE_INTEGER,
        "growing": TRUTH,
        "os_exit": TRUTH,
        "still_ns": NS,
        "threads": array(fields({"name": TEXT, "stack": _FRAMES})),
    }


def _loss() -> dict[str, Schema]:
    return {
        "graph_task": GRAPH_TASK,
        "value": about(TEXT, "What it is, in words."),
        "node": NODE,
        "name": TEXT,
        "reason": NULLABLE_TEXT,
        "remedy": NULLABLE_TEXT,
        "function": NULLABLE_TEXT,
        "line": LINE,
        "later_graph_tasks": COUNT,
    }
