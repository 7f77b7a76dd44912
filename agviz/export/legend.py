"""The heading of a picture: what it shows, what its colours and marks mean, what it folded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agviz.export import facts, labels, text
from agviz.export.palette import ALARM, FAINT, SEVERAL_LANES, lane_look, mixed_look
from agviz.graph.items import Kind
from agviz.traces.rows import GraphTaskStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.graph.model import Graph
    from agviz.graph.picture import Picture

LONGEST_MESSAGE = 120


def heading(picture: Picture) -> str:
    """The label of the whole picture."""
    graph = picture.graph
    lines = [
        f'<FONT POINT-SIZE="17"><B>{text.in_label(_title(graph))}</B></FONT>',
        labels.coloured(FAINT, text.in_label(_summary(graph))),
        *(labels.coloured(ALARM, f"<B>{text.in_label(said)}</B>") for said in _alarms(graph)),
        _key(picture),
        *(labels.coloured(FAINT, text.in_label(f"folded: {note}")) for note in picture.notes),
    ]
    rows = [labels.row(labels.cell(line)) for line in lines]
    return labels.html_like(labels.table(rows, 'BORDER="0"'))


def _title(graph: Graph) -> str:
    call = "backward" if graph.task.accumulate_grad else "grad"
    return " · ".join(filter(None, [text.shorten(graph.title), f"{call}(), pass {graph.task.id}"]))


def _summary(graph: Graph) -> str:
    task = graph.task
    said = [f"{task.nodes:,} nodes, {task.edges:,} edges"]
    if task.end_ns is not None:
        said.append(text.duration(task.end_ns - task.begin_ns))
    if task.status is not GraphTaskStatus.FINISHED:
        said.append(f"{task.status} after {task.executed:,} nodes")
    return " · ".join(said)


def _alarms(graph: Graph) -> Iterator[str]:
    if graph.task.error:
        message = text.shorten(f"{graph.task.error}: {graph.task.message}", LONGEST_MESSAGE)
        yield f"{facts.FAILED}: {message}"
    for node in graph.nodes:
        row = node.row
        if row.index == graph.first_nonfinite and row.nonfinite is not None:
            where = f" in {text.shorten(row.module)}" if row.module else ""
            yield (
                f"{facts.NON_FINITE} first non-finite gradient: {text.nonfinite(row.nonfinite)} "
                f"from {facts.numbers([row])} {row.short_name}{where}"
            )


def _key(picture: Picture) -> str:
    cells = []
    for lane in sorted(picture.graph.lanes.values(), key=lambda lane: lane.position):
        look = lane_look(lane.position)
        said = text.in_label(f"{look.mark} {lane.name}")
        cells.append(labels.cell(said, f'BGCOLOR="{look.strong}"'))
    if any(len({n.row.thread for n in item.nodes} - {None}) > 1 for item in picture.items):
        look = mixed_look()
        cells.append(labels.cell(f"{SEVERAL_LANES} several threads", f'BGCOLOR="{look.strong}"'))
    said = " &#160; ".join(map(text.in_label, _marks(picture)))
    cells.append(labels.cell(labels.coloured(FAINT, said)))
    return labels.table([labels.row(*cells)], 'BORDER="0"')


def _marks(picture: Picture) -> Iterator[str]:
    yield "number: order of execution"
    if any(node.leaves for item in picture.items if item.kind is Kind.NODE for node in item.nodes):
        yield f"{facts.PARAMETER} parameter (AccumulateGrad)"
    if any(
        facts.state(picture.graph, node.row) == facts.NOT_EXECUTED for node in picture.graph.nodes
    ):
        yield facts.NOT_EXECUTED
    yield "grey: module, gradient received, time"
    if picture.graph.meeting:
        yield f"{facts.MEETING}2 two gradients added up"
