"""The heading of a picture: what it shows, what its colours and marks mean, what it folded."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import TYPE_CHECKING

from agviz.analysis.origins import OriginKind
from agviz.export import facts, labels, text
from agviz.export.palette import SEVERAL_LANES
from agviz.graph.items import ItemKind
from agviz.graph.marks import EXPLODING
from agviz.graph.model import Differs
from agviz.traces.inferred import LEGEND, MARK, WITHDRAWN
from agviz.traces.rows import GraphTaskStatus
from agviz.words.health import nonfinite
from agviz.words.units import duration, plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.export.palette import Theme
    from agviz.graph.model import Queue, TaskGraph
    from agviz.graph.picture import GraphLayout
    from agviz.traces.rows import GraphTaskRow

LONGEST_MESSAGE = 120
MARKS_IN_A_LINE = 5
MOST_OTHERS = 4
"""Passes named in the heading beside the one that is drawn."""


def heading(picture: GraphLayout, theme: Theme) -> str:
    """The label of the whole picture."""
    graph = picture.graph
    lines = [
        f'<FONT POINT-SIZE="17"><B>{text.in_label(title(graph))}</B></FONT>',
        labels.coloured(theme.faint, text.in_label(summary(graph))),
        *(labels.coloured(theme.alarm, f"<B>{text.in_label(said)}</B>") for said in _alarms(graph)),
        *(labels.coloured(theme.ink, text.in_label(said)) for said in _about_view(graph)),
        *_key(picture, theme),
        *(labels.coloured(theme.faint, text.in_label(note)) for note in picture.notes),
    ]
    rows = [labels.row(labels.cell(line)) for line in lines if line]
    return labels.html_like(labels.table(rows, 'BORDER="0"'))


def title(graph: TaskGraph) -> str:
    """What is drawn, in a few words."""
    return title_of(graph.title, graph.task) if graph.ran else graph.title


def title_of(script: str, task: GraphTaskRow) -> str:
    """A pass, in a few words."""
    named = f"{call(task)}, pass {task.id}" + ", traced" * task.traced
    if task.parent >= 0:
        named += f", inside of pass {task.parent}"
    return " · ".join(filter(None, [text.shorten(script), named]))


def call(task: GraphTaskRow) -> str:
    """``backward()`` or ``grad()``."""
    return "backward()" if task.accumulate_grad else "grad()"


def summary(graph: TaskGraph) -> str:
    """How large it is, and how it ended."""
    inside = [inner.task for inner in graph.inside.values()]
    said = summary_of(graph.task, inside)
    return said if graph.ran else f"{said.partition(' · ')[0]} · not run yet"


def summary_of(task: GraphTaskRow, inside: Sequence[GraphTaskRow]) -> str:
    """How large a pass is, with those inside of it, and how it ended."""
    said = [f"{plural(task.nodes, 'node')}, {plural(task.edges, 'edge')}"]
    if inside:
        nodes, edges = sum(each.nodes for each in inside), sum(each.edges for each in inside)
        passes = plural(len(inside), "pass", "passes")
        said.append(f"{plural(nodes, 'node')}, {plural(edges, 'edge')} in {passes} inside of it")
    if task.end_ns is not None:
        said.append(duration(task.end_ns - task.begin_ns))
    if task.status is not GraphTaskStatus.FINISHED:
        said.append(f"{task.status} after {plural(task.executed, 'node')}")
    return " · ".join(said)


def _alarms(graph: TaskGraph) -> Iterator[str]:
    if graph.task.error and graph.moment is None:
        message = text.shorten(f"{graph.task.error}: {graph.task.message}", LONGEST_MESSAGE)
        yield f"{facts.FAILED}: {message}"
    kind = graph.marks.origins.get(graph.first_nonfinite or 0, OriginKind.NODE)
    for node in graph.nodes:
        row = node.row
        if row.index != graph.first_nonfinite:
            continue
        where = f" in {text.shorten(row.module)}" if row.module else ""
        place = f"{graph.turn(row)} {row.short_name}{where}".lstrip()
        if kind in facts.BEGINNINGS:
            yield f"{facts.NON_FINITE} first non-finite: {facts.BEGINNINGS[kind]}, at {place}"
        elif row.nonfinite is not None:
            counts = nonfinite(*row.nonfinite)
            yield f"{facts.NON_FINITE} first non-finite gradient: {counts} from {place}"


def _about_view(graph: TaskGraph) -> Iterator[str]:
    moment = graph.moment
    if moment is not None:
        rows = [
            row for node in graph.nodes for row in (node.row, *(leaf.row for leaf in node.leaves))
        ]
        counts = Counter({row.index: row.status for row in rows}.values())
        found = ", ".join(f"{counts[status]:,} {status}" for status in sorted(counts))
        time = duration(moment.time_ns)
        yield f"right after event {moment.seq}, {time} after it began: {found}"
        names = {row.index: f"{graph.turn(row)} {row.short_name}".lstrip() for row in rows}
        for queue in moment.queues:
            yield _queue(queue, names, MARK * graph.is_observed)
    yield from _others(graph)
    if graph.difference is not None:
        yield f"compared with {graph.difference.other} (B)"
        for sentence in graph.difference.summary:
            yield from textwrap.wrap(sentence, LONGEST_MESSAGE)


def _others(graph: TaskGraph) -> Iterator[str]:
    """The passes that are not drawn: those that failed first."""
    others = sorted(
        graph.others, key=lambda task: (task.status is not GraphTaskStatus.FAILED, task.id)
    )
    if not others:
        return
    said = [_other(task) for task in others[:MOST_OTHERS]]
    if len(others) > MOST_OTHERS:
        said.append(f"{len(others) - MOST_OTHERS:,} more")
    yield f"not drawn (--graph-task N): {' · '.join(said)}"


def _other(task: GraphTaskRow) -> str:
    said = f"pass {task.id} {call(task)}, {plural(task.nodes, 'node')}"
    if task.traced:
        said += ", traced while compiling"
    if task.status is not GraphTaskStatus.FINISHED:
        said += f", {'✗ ' * (task.status is GraphTaskStatus.FAILED)}{task.status}"
    return said


def _queue(queue: Queue, names: dict[int, str], inferred: str) -> str:
    if queue.tasks is None:
        return f"ReadyQueue of {queue.name}: {WITHDRAWN}"
    said = f"{inferred}ReadyQueue of {queue.name}: {plural(queue.tasks, 'task')}"
    shown = [names[node] for node in queue.nodes if node in names]
    if shown:
        more = ", …" if queue.tasks > len(shown) else ""
        said += f", next {', '.join(shown)}{more}"
    return said


def _key(picture: GraphLayout, theme: Theme) -> Iterator[str]:
    """What colours and marks mean."""
    said = [text.in_label(mark) for mark in _marks(picture)]
    lines = [
        labels.coloured(theme.faint, " &#160; ".join(said[start : start + MARKS_IN_A_LINE]))
        for start in range(0, len(said), MARKS_IN_A_LINE)
    ]
    cells = [*_lanes(picture, theme), *map(labels.cell, lines[:1])]
    if cells:
        yield labels.table([labels.row(*cells)], 'BORDER="0"')
    yield from lines[1:]


def _lanes(picture: GraphLayout, theme: Theme) -> Iterator[str]:
    for lane in sorted(picture.graph.lanes.values(), key=lambda lane: lane.position):
        look = theme.lane(lane.position)
        said = text.in_label(f"{look.mark} {lane.name}")
        yield labels.cell(labels.coloured(theme.ink, said), f'BGCOLOR="{look.strong}"')
    if any(len({n.row.thread for n in item.nodes} - {None}) > 1 for item in picture.items):
        said = labels.coloured(theme.ink, f"{SEVERAL_LANES} several threads")
        yield labels.cell(said, f'BGCOLOR="{theme.mixed().strong}"')


def _marks(picture: GraphLayout) -> Iterator[str]:
    graph, marks = picture.graph, picture.graph.marks
    drawn = [node for item in picture.items if item.kind is ItemKind.NODE for node in item.nodes]
    rows = {node.row.index for node in drawn}
    path = duration(marks.critical.total_ns)
    explained = (
        (graph.ran, "number: order of execution"),
        (any(node.leaves for node in drawn), f"{facts.PARAMETER} parameter (AccumulateGrad)"),
        (
            any(facts.state(graph, node.row) == facts.NOT_EXECUTED for node in graph.nodes),
            facts.NOT_EXECUTED,
        ),
        (graph.ran, "grey: module, gradient received, time"),
        (marks.dtype, _dtypes(graph)),
        (graph.meeting, f"{facts.MEETING}2 two gradients added up"),
        (
            marks.critical.nodes,
            f"{facts.CRITICAL} and strong lines: critical path, {path} of nodes that wait in turn",
        ),
        (rows & marks.hooks.keys(), f"{facts.HOOK} hook"),
        (
            rows & marks.growth.keys(),
            f"{facts.GROWTH} exploding: the largest element grew {EXPLODING:,.0f} times or more",
        ),
        (rows & marks.zero or marks.zeros, f"{facts.ZERO} nothing but zeros"),
        (
            marks.nonfinite,
            f"{facts.NON_FINITE} and bold coloured lines: the path of NaN and infinities",
        ),
        (graph.inside, "arrow to a frame: the node calls that pass; 5.3 ran third inside of 5"),
        (marks.saved, f"{facts.SAVED} tensor saved for backward"),
        (graph.cut, f"{facts.CUT} neighbours left out"),
        (graph.is_observed and graph.moment, LEGEND),
        (graph.difference, f"{facts.DIFFERENCES[Differs.AFTERWARDS]} differs from B"),
        (graph.difference and graph.difference.edges, "dashed: only in B"),
    )
    yield from (said for is_there, said in explained if is_there)


def _dtypes(graph: TaskGraph) -> str:
    several = len(set(graph.marks.dtypes.values())) > 1
    return f"gradients are {graph.marks.dtype}" + " where nothing else is said" * several
