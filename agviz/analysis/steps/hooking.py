"""Hooks that write into a gradient which is another node's, too.

``AddBackward0`` gives the very tensor that it gets to both of its arguments. A tensor hook that
writes into what it is given, in place of giving another tensor back, changes both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import definition, writes_to_argument
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import Frame

_HANDS_ON: Final = "AddBackward"
_BEFORE: Final = "tensor_pre"
_MOST_NODES: Final = 20_000
_PASSES: Final = 20


def written(run: RunSteps) -> Iterator[StepFinding]:
    """Hooks whose text writes to a gradient that a sum gave to two nodes, in the last passes."""
    writing: dict[str, Frame] = {}
    for call in run.trace.hook_times():
        made = definition(run.trace, call.name.rpartition(".")[2])
        line = writes_to_argument(run.trace, made) if call.kind == _BEFORE else None
        writing.update({} if line is None else {call.name: line})
    for task in run.passes[: -_PASSES - 1 : -1] if writing else ():
        found = None if task.nodes > _MOST_NODES else _in_pass(run, task.id, writing)
        if found is not None:
            yield found
            return


def _in_pass(run: RunSteps, task: int, writing: Mapping[str, Frame]) -> StepFinding | None:
    nodes, edges = run.trace.nodes(task), run.trace.edges(task)
    for call in run.trace.hook_calls(task):
        of, line = nodes[call.node], writing.get(call.name)
        sums = [
            nodes[edge.producer]
            for edge in edges
            if edge.consumer == call.node and nodes[edge.producer].name.startswith(_HANDS_ON)
        ]
        later = [
            nodes[edge.consumer]
            for edge in edges
            if sums and edge.producer == sums[0].index and edge.consumer != call.node
            if (nodes[edge.consumer].order or 0) > (of.order or 0)
        ]
        if line is None or not later or not _are_equal(run, task, sums[0].index):
            continue
        return StepFinding(
            kind="hook writes",
            heading=f"the hook {call.name} writes into a gradient that is shared",
            frame=line,
            paragraph=(
                f"It is a hook of what {of.short_name} gave{f' ({of.line})' if of.line else ''},"
                f" whose gradient comes from a sum ({sums[0].line}): that gives one and the same"
                " tensor to both of its arguments. Writing in place changes the gradient of the"
                f" other one, too, which {later[0].short_name} gets later. Let the hook return a"
                " new tensor."
            ),
        )
    return None


def _are_equal(run: RunSteps, graph_task: int, node: int) -> bool:
    """Whether a sum put the same out for both: none was expanded or scaled."""
    rows = [row for row in run.trace.health(graph_task, node) if row.role == "output"]
    return len(rows) == 2 and len({(row.shape, row.min, row.max, row.norm) for row in rows}) == 1
