"""Derivatives of several outputs that all are that of their sum.

``grad(out, x, torch.ones_like(out))`` of an output with columns gives the gradient of the sum of
all columns. A program that means one of each calls it once for each, and gets the same every time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.analysis.steps.finding import StepFinding

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import Frame, GraphTaskRow

_LOOKED_AT: Final = 12
"""Passes, the last ones."""
_MOST_NODES: Final = 20_000


def same_derivative(run: RunSteps) -> Iterator[StepFinding]:
    """Two lines that ask for the gradient of one output of several columns, and get one answer."""
    known: dict[object, list[Frame]] = {}
    for task in [*run.trace.graph_tasks.outermost][-_LOOKED_AT:]:
        asked = _asked(run, task)
        shown = [frame for frame in run.trace.call_site(task.id) if not frame.hidden]
        if asked is None or not shown:
            continue
        key, columns = asked
        before = known.setdefault(key, shown)
        if before == shown or len(before) != len(shown):
            continue
        one, other = next((a, b) for a, b in zip(before, shown, strict=True) if a != b)
        yield StepFinding(
            kind="same derivative",
            heading=f"two calls of grad give the same: that of the sum of {columns:,} outputs",
            frame=other,
            paragraph=(
                f"This line and {one} ask for the gradient of the same output, all {columns:,}"
                " columns of it with weights of 1, with respect to the same input: both get the"
                " derivative of the sum of the columns. Where that of each column is meant, take"
                " one: grad(out[:, i].sum(), x, create_graph=True)."
            ),
        )
        return


def _asked(run: RunSteps, task: GraphTaskRow) -> tuple[object, int] | None:
    """What a call of grad asked for, with what it got, and how many columns it summed."""
    is_grad = not task.accumulate_grad and (task.roots, task.inputs) == (1, 1) and not task.traced
    if not is_grad or not task.create_graph or not 0 < task.nodes <= _MOST_NODES:
        return None
    nodes = run.trace.nodes(task.id)
    rows = [row for row in run.trace.health(task.id, 0) if row.role == "root"]
    shape = (rows[0].shape or ()) if len(rows) == 1 else ()
    if len(shape) < 2 or shape[-1] < 2 or not rows[0].min == rows[0].max == 1.0:
        return None
    numbers = tuple((node.name, node.sequence_nr, node.output_shapes) for node in nodes)
    got = tuple(
        (node.index, row.slot, row.min, row.max, row.norm)
        for node in nodes
        for row in run.trace.health(task.id, node.index)
        if row.role == "output"
    )
    return (numbers, got), shape[-1]
