"""Derivatives of several outputs that all are that of their sum.

``grad(out, x, torch.ones_like(out))`` of an output with columns gives the gradient of the sum of
all columns. A program that means one of each calls it once for each, and gets the same every time.

Note [One derivative of several columns]
Or it calls it once. The sum of the derivatives by a single input, as by the time, may be meant. It
is not where the graph shows that what it gave is compared with each column: a sum or difference
spreads it over as many columns, or two of them take it beside a column cut out of the same output.
Where a derivative by the weights is taken afterwards, it is a derivative forwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.steps.pass_graph import PassGraph, came, gave
from agviz.traces.rows import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.rows import Frame, GraphTaskRow, NodeRow

_LOOKED_AT: Final = 12
"""Passes, the last ones."""
_MOST_NODES: Final = 20_000
_ALL: Final = 2**63
_MOST_COLUMNS: Final = 8
"""Of an output each column of which is taken for a quantity of its own."""
_SUMS: Final = ("AddBackward", "RsubBackward", "SubBackward")
_CUTTING: Final = ("Select", "Slice", "Split", "Unbind")
_SCALING: Final = ("Clone", "Div", "Expand", "Mul", "Neg", "Squeeze", "Unsqueeze", "View")
_BY_ELEMENTS: Final = (*_SUMS, *_SCALING, "Cos", "Exp", "Pow", "Sigmoid", "Sin", "Tanh")
_MOST_DEEP: Final = 12
"""Nodes between a side of an equation and the columns of which it is made."""


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


def summed_derivative(run: RunSteps) -> Iterator[StepFinding]:
    """The sum of all columns' derivatives in the equation of each column.

    Note [One derivative of several columns].
    """
    for task in run.passes[:-3:-1]:
        summed = _summed(run, task) if task.nodes <= _MOST_NODES else []
        for asked in summed:
            how = _compared(PassGraph(run, task.id), asked)
            if how:
                yield StepFinding(
                    kind="summed derivative",
                    heading=(
                        f"the derivative of the sum of {asked.columns:,} outputs is taken for that"
                        " of each"
                    ),
                    frame=asked.frame,
                    paragraph=f"{_what(asked)} {how} {_REMEDY}",
                )
                return


def one_derivative(run: RunSteps) -> StepFinding | None:
    """Derivatives of several columns by one input, of which the sum is given; None: there is none.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    for task in run.passes[-1:]:
        for asked in _summed(run, task):
            if not asked.is_of_number and any(
                _is_made(node, asked) for node in run.trace.nodes(task.id)
            ):
                return StepFinding(
                    kind="summed derivative",
                    heading=f"grad gives one derivative for {asked.columns:,} outputs: their sum's",
                    frame=asked.frame,
                    paragraph=f"{_what(asked)} If the sum is meant, all is well. {_REMEDY}",
                )
    return None


_REMEDY: Final = (
    "Where that of each column is meant, call grad for each: grad(out[:, i].sum(), t,"
    " create_graph=True)."
)


class _Summed(NamedTuple):
    """A call of ``grad`` that summed the derivatives of columns."""

    frame: Frame
    rows: int
    columns: int
    own: frozenset[int]
    """Sequence numbers of the nodes that it went through."""
    made: range
    """Those of what it made."""
    is_of_number: bool
    """Whether the program took the sum itself."""


def _what(asked: _Summed) -> str:
    of, by = [asked.rows, asked.columns], [asked.rows, 1]
    return (
        f"The derivative of {of} by {by} is asked for, with weights of 1: it is {by}, the sum of"
        f" the derivatives of all {asked.columns:,} columns."
    )


def _summed(run: RunSteps, before: GraphTaskRow) -> list[_Summed]:
    last = max((task for task in run.passes.ids if task < before.id), default=-1)
    tasks = [task for task in run.trace.graph_tasks.outermost if last < task.id < before.id]
    calls = [
        (task, frame)
        for task in tasks[-_LOOKED_AT:]
        if not task.accumulate_grad and (task.roots, task.inputs) == (1, 1)
        if 0 < task.nodes <= _MOST_NODES
        if (frame := visible(run.trace.call_site(task.id))) is not None
    ]
    taken = {_got(run, task) for task, _ in calls}
    found = []
    for number, (task, frame) in enumerate(calls):
        out = _outputs(run, task) if task.create_graph else None
        if out is None or len(out[0]) != 2 or frame in [at for _, at in calls[:number]]:
            continue  # else which call of the line made what is not known
        (rows, columns), is_of_number = out
        if not 2 <= columns <= _MOST_COLUMNS < rows or _got(run, task) != (rows, 1):
            continue
        own = run.trace.sequence_nrs(task.id)
        later = [run.trace.sequence_nrs(each.id) for each, at in calls[number + 1 :] if at == frame]
        made = range(
            max(own, default=0) + 1, min((max(one, default=0) for one in later), default=_ALL) + 1
        )
        found.append(_Summed(frame, rows, columns, own, made, is_of_number))
    return [each for each in found if (each.rows, each.columns) not in taken]


def _got(run: RunSteps, task: GraphTaskRow) -> tuple[int, ...] | None:
    """The shape of what a call of ``grad`` gave."""
    got = run.trace.captures(task.id)
    return came(run.trace.node(task.id, got[0][0])) if len(got) == 1 else None


def _outputs(run: RunSteps, task: GraphTaskRow) -> tuple[tuple[int, ...], bool] | None:
    """The shape of what was derived with weights of 1, and whether it was summed before."""
    rows = [row for row in run.trace.health(task.id, 0) if row.role == "root"]
    if len(rows) != 1 or not rows[0].min == rows[0].max == 1.0:
        return None
    shape, root = rows[0].shape or (), run.trace.node(task.id, 0)
    if shape:
        return shape, False
    return (gave(root, 0) or (), True) if root.name.startswith("Sum") else None


def _is_made(node: NodeRow, asked: _Summed) -> bool:
    """Whether a call of ``grad`` made a node for its result."""
    is_new = node.sequence_nr is not None and node.sequence_nr in asked.made
    return is_new and came(node) == (asked.rows, 1) and node.frame == asked.frame


def _compared(graph: PassGraph, asked: _Summed) -> str:
    """How what a call gave is taken for the derivative of each column; empty: it is not seen."""
    beside: dict[int, NodeRow] = {}
    for node in graph.nodes:
        edges = graph.below.get(node.index, [])
        if not node.name.startswith(_SUMS):
            continue
        for edge in edges:
            if not _leads(graph, edge.consumer, _SCALING, lambda each: _is_made(each, asked)):
                continue
            wide = asked.rows, asked.columns
            if came(node) == wide and gave(node, edge.output) == (asked.rows, 1):
                return f"{node.frame or node.name} compares it with each of the columns."
            for other in edges:
                if other is not edge and _leads(
                    graph, other.consumer, _BY_ELEMENTS, lambda each: _is_column(graph, each, asked)
                ):
                    beside[other.consumer] = node
    if len(beside) < 2:
        return ""
    first, second = [node.frame or node.name for node in beside.values()][:2]
    lines = f"Two equations at {first}" if first == second else f"{first} and {second}"
    return f"{lines} take it for that of a single column."


def _is_column(graph: PassGraph, node: NodeRow, asked: _Summed) -> bool:
    """Whether a node cut a column out of the output."""
    below = [graph.nodes[edge.consumer] for edge in graph.below.get(node.index, ())]
    is_of_output = any(each.sequence_nr in asked.own for each in below)
    return (
        node.name.startswith(_CUTTING) and is_of_output and asked.columns in (gave(node, 0) or ())
    )


def _leads(
    graph: PassGraph, index: int, through: tuple[str, ...], fits: Callable[[NodeRow], bool]
) -> bool:
    """Whether a node, or one that it leads to by nodes of some names, fits."""
    waiting = [index]
    for _ in range(_MOST_DEEP):
        nodes = [graph.nodes[each] for each in dict.fromkeys(waiting)]
        if any(map(fits, nodes)):
            return True
        waiting = [
            edge.consumer
            for node in nodes
            if node.name.startswith(through)
            for edge in graph.below.get(node.index, ())
        ]
    return False


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
