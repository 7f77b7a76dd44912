"""Schema of a chrome-trace: the part of the Trace Event Format that agviz writes."""

from __future__ import annotations

from typing import Final

from agviz.export.schemas.parts import (
    COUNT,
    INTEGER,
    NUMBER,
    TEXT,
    TRUTH,
    Schema,
    about,
    array,
    fields,
    identified,
    kinds,
    mapping,
    nullable,
    words,
)
from agviz.export.schemas.shared import COUNTS, SHAPE
from agviz.words.documents import DOCUMENTS

_US: Final = about({"type": "number", "minimum": 0}, "In µs, with three decimals.")
_NODE: Final = {"graph task": INTEGER, "node": INTEGER, "name": TEXT, "module": TEXT}
_OF_SLICES: Final[dict[str, Schema]] = {
    **_NODE,
    "parameter": TEXT,
    "order": INTEGER,
    "Sequence number": COUNT,
    "Input Dims": array(SHAPE),
    "topological number": COUNT,
    "status": TEXT,
    "created by": TEXT,
    "Call stack": TEXT,
    "nodes": COUNT,
    "edges": COUNT,
    "executed": COUNT,
    "roots": COUNT,
    "inputs": COUNT,
    "keep_graph": TRUTH,
    "create_graph": TRUTH,
    "reentrant depth": COUNT,
    "traced": TRUTH,
    "queues": TEXT,
    "parent graph task": INTEGER,
    "parent node": INTEGER,
    "kind": TEXT,
    "changed": TRUTH,
    "inferred": TRUTH,
    "callback": INTEGER,
    "pass": INTEGER,
    "group": TEXT,
    "seq": INTEGER,
    "point-to-point": TRUTH,
    "last rank": INTEGER,
    "shapes": TEXT,
    "dtypes": TEXT,
    "group name": TEXT,
    "ranks": array(INTEGER),
    "ran ns": INTEGER,
    "waiting ns": INTEGER,
    "transfer ns": INTEGER,
}
"""What a slice may say, by category: docs/formats.md."""
_OF_INSTANTS: Final[dict[str, Schema]] = {
    **_NODE,
    "parameter": TEXT,
    "error": TEXT,
    "message": TEXT,
    "output": INTEGER,
    **COUNTS,
    "reason": TEXT,
    "expected": INTEGER,
    "queues": TEXT,
    "kind": TEXT,
    "slot": INTEGER,
}


def chrome_trace() -> Schema:
    """Of ``agviz export --format chrome-trace``, without what ``--with`` adds."""
    properties: dict[str, Schema] = {
        "schemaVersion": {"const": 1},
        "displayTimeUnit": {"const": "ns"},
        "baseTimeNanoseconds": about(INTEGER, "Where `ts` is 0, in ns since 1970."),
        "otherData": _facts(),
        "traceEvents": array(_event()),
    }
    text = "What ran when, in the Trace Event Format. Readers of that know more of it."
    return {
        **identified("chrome-trace", "agviz export --format chrome-trace", text),
        **fields(properties),
    }


def _facts() -> Schema:
    version = {"const": DOCUMENTS["chrome-trace"]}
    clock = {"error_ns": nullable(INTEGER), "from": TEXT, "offset_ns": INTEGER}
    optional = {
        "argv": array(TEXT),
        "inferred": about(TEXT, "What that means, where torch's engine ran."),
        "overlay": about(TEXT, "How well the clocks of two files fit."),
        "world size": COUNT,
        "missing ranks": array(INTEGER),
        "clocks": about(mapping(fields(clock)), "By number of the rank."),
    }
    known: dict[str, Schema] = {
        "document": {"const": "chrome-trace"},
        "version": version,
        "script": TEXT,
        **dict.fromkeys(("python", "torch", "agviz", "engine"), TEXT),
    }
    return fields({**known, **optional}, optional=optional)


def _event() -> Schema:
    common = {"name": TEXT, "pid": INTEGER}
    timed = {**common, "ts": _US}
    on_thread = {**timed, "tid": INTEGER}
    flow = {**on_thread, "id": INTEGER, "cat": words(["gradient", "collective"])}
    names = {"name": TEXT, "sort_index": INTEGER}
    gauge = {"depth": NUMBER, "bytes": NUMBER}
    slices, instants = _some(_OF_SLICES), _some(_OF_INSTANTS)
    return kinds(
        {
            "M": fields({**common, "tid": INTEGER, "args": _some(names)}),
            "X": fields({**on_thread, "dur": _US, "cat": TEXT, "args": slices}),
            "C": fields({**timed, "args": _some(gauge)}),
            "i": fields({**on_thread, "s": {"const": "t"}, "cat": TEXT, "args": instants}),
            "s": fields(flow),
            "f": fields({**flow, "bp": {"const": "e"}}),
        },
        by="ph",
    )


def _some(known: dict[str, Schema]) -> Schema:
    return fields(known, optional=known)
