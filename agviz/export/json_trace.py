"""A whole trace as one JSON document; docs/formats.md says what is in it.

Every row is on a line of its own, so that two documents can be compared line by line.
"""

from __future__ import annotations

import json
import math
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from agviz.analysis.passes import Passes
from agviz.traces.inferred import is_inferred
from agviz.traces.rows import ForwardOpRow, GraphTaskStatus, NodeRow, NodeStatus
from agviz.words.documents import head

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from agviz.traces.reader import Trace
    from agviz.traces.rows import ForwardTensorRow, Frame, GraphTaskRow, SavedHealthRow
    from agviz_engine.events import Event

_TIMES: Final = frozenset({"time_ns", "begin_ns", "start_ns", "end_ns"})
"""Fields that are moments, counted from the start of the recording."""
_NODE_FIELDS: Final = tuple(field.name for field in fields(NodeRow))
_OP_FIELDS: Final = tuple(field.name for field in fields(ForwardOpRow))
_OPS_PER_PAGE: Final = 2_000
_ALL: Final = 2**31 - 1


def json_trace(trace: Trace, graph_task: int | None = None) -> Iterator[str]:
    """The trace as JSON, piece by piece, in ASCII; no more than one graph task is held at once.

    Args:
        trace: the trace.
        graph_task: only this one and the reentrant ones inside it; None: everything.

    Raises:
        agviz.errors.TraceError: there is no such graph task, or the file is damaged; also between
            two pieces.
    """
    return _Document(trace, Passes(trace, graph_task)).pieces()


class _Document:
    def __init__(self, trace: Trace, passes: Passes) -> None:
        self._trace = trace
        self._passes = passes
        self._start_ns = trace.meta.start_ns

    def pieces(self) -> Iterator[str]:
        trace, tasks = self._trace, self._passes.tasks.values()
        yield f'{{\n"format": "agviz", {json.dumps(head("trace"))[1:-1]},\n'
        yield f'"meta": {json.dumps(trace.meta._asdict())},\n'
        yield from _rows("threads", (thread._asdict() for thread in trace.threads))
        yield ',\n"graph_tasks": ['
        separator = "\n"
        for task in tasks:
            yield separator
            yield from self._graph_task(task)
            separator = ",\n"
        yield "],\n"
        yield from _rows(
            "events", map(self._event, filter(self._passes.covers, self._passes.events()))
        )
        yield ",\n"
        stacks: dict[tuple[Frame, ...], int] = {}
        yield from _rows("forward", (self._op(op, stacks) for op in self._ops()))
        yield ",\n"
        yield from _rows("forward_stacks", (list(map(_frame, stack)) for stack in stacks))
        yield ",\n"
        yield from _rows("findings", (row for task in tasks for row in self._findings(task)))
        yield "\n}\n"

    def _graph_task(self, task: GraphTaskRow) -> Iterator[str]:
        facts = self._relative(task._asdict())
        facts["node_count"], facts["edge_count"] = facts.pop("nodes"), facts.pop("edges")
        yield json.dumps(facts)[:-1] + ",\n"
        nodes = self._trace.nodes(task.id)
        stacks: dict[tuple[Frame, ...], int] = {}
        yield from _rows("nodes", (self._node(node, stacks) for node in nodes))
        yield ",\n"
        yield from _rows("edges", (edge._asdict() for edge in self._trace.edges(task.id)))
        yield ",\n"
        yield from _rows("stacks", (list(map(_frame, stack)) for stack in stacks))
        yield ",\n"
        yield from _rows("saved", (saved._asdict() for saved in self._trace.all_saved(task.id)))
        yield ",\n"
        yield from _rows("saved_health", map(_with_health, self._trace.saved_health(task.id)))
        yield ",\n"
        known = self._trace.parameters(task.id)
        yield from _rows("parameters", (parameter._asdict() for parameter in known))
        yield "}"
        self._passes.forget(len(nodes))

    def _node(self, node: NodeRow, stacks: dict[tuple[Frame, ...], int]) -> dict[str, Any]:
        facts = self._relative({name: getattr(node, name) for name in _NODE_FIELDS})
        facts["line"] = node.line
        facts["stack"] = stacks.setdefault(node.stack, len(stacks)) if node.stack else None
        return facts

    def _ops(self) -> Iterator[ForwardOpRow]:
        """The torch functions before and in the graph tasks that are meant, or all."""
        for number in [None] if self._passes.is_whole else sorted(self._passes.tasks):
            offset = 0
            while ops := self._trace.forward_ops(number, offset, _OPS_PER_PAGE):
                yield from ops
                offset += len(ops)

    def _op(self, op: ForwardOpRow, stacks: dict[tuple[Frame, ...], int]) -> dict[str, Any]:
        facts = self._relative({name: getattr(op, name) for name in _OP_FIELDS})
        facts["sequence_nrs"] = [op.sequence_nrs.start, op.sequence_nrs.stop]
        facts["inputs"] = list(map(_with_health, op.inputs))
        facts["outputs"] = list(map(_with_health, op.outputs))
        facts["line"] = op.line
        facts["stack"] = stacks.setdefault(op.stack, len(stacks)) if op.stack else None
        return facts

    def _event(self, event: Event) -> dict[str, Any]:
        own = self._relative(event._asdict())
        if "kind" in own:
            own["which"] = own.pop("kind")
        facts = {"kind": type(event).__name__} | own
        if is_inferred(self._trace.meta, event):
            facts["inferred"] = True
        return facts

    def _findings(self, task: GraphTaskRow) -> Iterator[dict[str, Any]]:
        for row in self._trace.nonfinite(task.id, limit=_ALL):
            yield {"kind": "non_finite"} | self._relative(row._asdict())
        self._passes.forget(task.nodes)
        if task.status is GraphTaskStatus.FAILED:
            nodes = self._trace.nodes(task.id)
            yield {
                "kind": "failure",
                "graph_task": task.id,
                "error": task.error,
                "message": task.message,
                "nodes": [node.index for node in nodes if node.status is NodeStatus.FAILED],
            }

    def _relative(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        return {
            key: value - self._start_ns if key in _TIMES and value is not None else value
            for key, value in facts.items()
        }


def _frame(frame: Frame) -> dict[str, Any]:
    """Without the text of its line, which would be in many stacks."""
    facts = frame._asdict()
    del facts["source"]
    return facts


def _with_health(row: SavedHealthRow | ForwardTensorRow) -> dict[str, Any]:
    """JSON has no infinities: a norm that no float can hold is null."""
    facts = row._asdict()
    if row.health is not None:
        measured = row.health._asdict()
        if measured["norm"] == math.inf:
            measured["norm"] = None
        facts["health"] = measured
    return facts


def _rows(name: str, rows: Iterable[object]) -> Iterator[str]:
    """``"name": [...]``, one row a line."""
    yield f'"{name}": ['
    separator = "\n"
    for row in rows:
        yield separator + json.dumps(row)
        separator = ",\n"
    yield "]"
