"""Hooks and custom Functions that write into a gradient which is another node's, too.

``AddBackward0`` gives the very tensor that it gets to both of its arguments. A tensor hook, or the
``backward`` of a custom Function, that writes into what it is given, in place of giving another
tensor back, changes both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import definition, method, writes_to_argument
from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import EdgeRow, Frame, NodeRow

_HANDS_ON: Final = "AddBackward"
_BEFORE: Final = "tensor_pre"
_MOST_NODES: Final = 20_000
_PASSES: Final = 20


def written(run: RunSteps) -> Iterator[StepFinding]:
    """Hooks and Functions whose text writes to a gradient that a sum gave to two nodes."""
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
    for task in run.passes[:-3:-1]:
        found = None if task.nodes > _MOST_NODES else _by_functions(run, task.id)
        if found is not None:
            yield found
            return


def _in_pass(run: RunSteps, task: int, writing: Mapping[str, Frame]) -> StepFinding | None:
    nodes, edges = run.trace.nodes(task), run.trace.edges(task)
    for call in run.trace.hook_calls(task):
        line = writing.get(call.name)
        shared = None if line is None else _shared(run, nodes, edges, nodes[call.node])
        if line is None or shared is None:
            continue
        of, (total, later) = nodes[call.node], shared
        return StepFinding(
            kind="hook writes",
            heading=f"the hook {call.name} writes into a gradient that is shared",
            frame=line,
            paragraph=(
                f"It is a hook of what {of.short_name} gave{f' ({of.line})' if of.line else ''},"
                f" whose gradient comes from a sum ({total.line}): that gives one and the same"
                " tensor to both of its arguments. Writing in place changes the gradient of the"
                f" other one, too, which {later.short_name} gets later. Let the hook return a"
                " new tensor."
            ),
        )
    return None


def _by_functions(run: RunSteps, task: int) -> StepFinding | None:
    nodes = run.trace.nodes(task)
    edges: Sequence[EdgeRow] = ()
    lines: dict[str, Frame | None] = {}
    for node in nodes:
        owner = node.short_name.removesuffix("Backward")
        if owner == node.short_name:
            continue  # those of torch itself end in a number
        if owner not in lines:
            made = method(run.trace, owner, "backward")
            lines[owner] = writes_to_argument(run.trace, made)
        line = lines[owner]
        if line is None or len(node.input_shapes or ()) != 1:
            continue
        edges = edges or run.trace.edges(task)
        shared = _shared(run, nodes, edges, node)
        if shared is None:
            continue
        total, later = shared
        return StepFinding(
            kind="hook writes",
            heading=f"the backward of {owner} writes into a gradient that is shared",
            frame=line,
            paragraph=(
                f"The gradient that it is given comes from a sum ({total.line}): that gives one"
                " and the same tensor to both of its arguments. Writing in place changes the"
                f" gradient of the other one, too, which {later.short_name}"
                f"{f' ({later.line})' if later.line else ''} gets later. Write to a copy:"
                " grad_output.clone()."
            ),
        )
    return None


def _shared(
    run: RunSteps, nodes: Sequence[NodeRow], edges: Sequence[EdgeRow], of: NodeRow
) -> tuple[NodeRow, NodeRow] | None:
    """The sum that gave a node its gradient, and who gets the same later; None: nobody does."""
    sums = [
        nodes[edge.producer]
        for edge in edges
        if edge.consumer == of.index and nodes[edge.producer].name.startswith(_HANDS_ON)
    ]
    later = [
        nodes[edge.consumer]
        for edge in edges
        if sums and edge.producer == sums[0].index and edge.consumer != of.index
        if (nodes[edge.consumer].order or 0) > (of.order or 0)
    ]
    is_shared = bool(later) and _are_equal(run, of.graph_task, sums[0].index)
    return (sums[0], later[0]) if is_shared else None


def _are_equal(run: RunSteps, graph_task: int, node: int) -> bool:
    """Whether a sum put the same out for both: none was expanded or scaled."""
    rows = [row for row in run.trace.health(graph_task, node) if row.role == "output"]
    return len(rows) == 2 and len({(row.shape, row.min, row.max, row.norm) for row in rows}) == 1
