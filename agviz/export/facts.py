"""What is worth saying about a node, an edge or a group, in plain words: tooltips and findings."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from agviz.analysis.measures import is_nonfinite
from agviz.analysis.origins import OriginKind
from agviz.export import text
from agviz.graph.items import ItemKind
from agviz.graph.model import Differs
from agviz.traces.inferred import MARK
from agviz.traces.rows import GraphTaskStatus, NodeStatus
from agviz.words.health import nonfinite
from agviz.words.shapes import write_shape
from agviz.words.units import duration, plural, size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agviz.graph.items import EdgeBundle, Item
    from agviz.graph.model import Edge, Leaf, TaskGraph
    from agviz.traces.hook_calls import HookCalls
    from agviz.traces.rows import NodeRow, SavedRow

PARAMETER = "θ"
SAVED = "▣"
NON_FINITE = "⚠"
GROWTH = "⇈"
ZERO = "∅"
MEETING = "⊕"
HOOK = "ƒ"
CRITICAL = "┃"
CUT = "⋯"
FAILED = "✗ failed"
NOT_EXECUTED = "○ not executed"
STATUS_MARKS = {
    NodeStatus.FAILED: FAILED,
    NodeStatus.SKIPPED: "⊘ skipped",
    NodeStatus.RUNNING: "▶ running",
    NodeStatus.READY: "◔ ready",
    NodeStatus.UNKNOWN: "? not recorded",
}
DIFFERENCES = {
    Differs.ONLY_HERE: f"{text.MINUS} only here",
    Differs.ONLY_THERE: "+ only there",
    Differs.FIRST: "≠ differs first",
    Differs.AFTERWARDS: "≠",
}
BEGINNINGS = {
    OriginKind.SUM: "the sum of finite gradients",
    OriginKind.ROOT: "the gradient given to backward",
    OriginKind.HOOK: "what a hook gave",
    OriginKind.ACCUMULATED: "what .grad became",
    OriginKind.CAPTURED: "what grad returns",
}
"""What became non-finite where no node's own outputs did."""
MOST_EDGES = 8
"""Edges written out in the tooltip of a link."""
MOST_HOOKS = 2
"""Hooks of a node named in the picture."""


class Remark(NamedTuple):
    """What a reader should not miss."""

    words: str
    alarming: bool


def is_executed(graph: TaskGraph, item: Item) -> bool:
    """Whether any of its nodes was taken up; nothing shows that of a graph before it is run."""
    return not graph.ran or any(node.row.order is not None for node in item.nodes)


def is_alarming(graph: TaskGraph, row: NodeRow) -> bool:
    """Whether it failed, differs first, or gradients became non-finite there."""
    if graph.difference is not None and graph.difference.nodes.get(row.index) is Differs.FIRST:
        return True
    return row.status is NodeStatus.FAILED or row.index == graph.first_nonfinite


def numbers(graph: TaskGraph, rows: Iterable[NodeRow]) -> str:
    """The turn in execution, or the first and the last; empty where nothing was executed.

    Of nodes of several passes, those of the outermost count. Where none was taken up yet at the
    moment that is drawn: the turns that they had later.
    """
    rows = list(rows)
    ran = [row for row in rows if row.order is not None] or rows
    outermost = min((row.graph_task for row in ran), default=None)
    turns = sorted(
        (order, row)
        for row in ran
        if row.graph_task == outermost and (order := graph.order(row)) is not None
    )
    if not turns:
        return ""
    first, last = graph.turn(turns[0][1]), graph.turn(turns[-1][1])
    return first if first == last else f"{first}{text.DASH}{last.rpartition('.')[2]}"


def state(graph: TaskGraph, row: NodeRow) -> str:
    """What became of a node that did not simply run; empty for one that did."""
    if not graph.ran:
        return ""
    difference = None if graph.difference is None else graph.difference.nodes.get(row.index)
    if difference is Differs.ONLY_THERE:
        return ""
    ended = graph.task.status is not GraphTaskStatus.RUNNING and graph.moment is None
    if ended and row.status in {NodeStatus.WAITING, NodeStatus.READY}:
        return NOT_EXECUTED
    return STATUS_MARKS.get(row.status, "")


def findings(graph: TaskGraph, item: Item) -> list[Remark]:
    """What a reader should not miss about an item, most important first."""
    rows = [node.row for node in item.nodes]
    if item.kind is ItemKind.NODE:
        return list(_findings(graph, rows[0]))
    marks = graph.marks
    differing = Counter(
        graph.difference.nodes[row.index]
        for row in rows
        if graph.difference is not None and row.index in graph.difference.nodes
    )
    counted = [
        (sum(row.status is NodeStatus.FAILED for row in rows), FAILED, True),
        (sum(row.status is NodeStatus.RUNNING for row in rows), "▶ running", False),
        *((count, DIFFERENCES[kind], True) for kind, count in sorted(differing.items())),
        (sum(map(is_nonfinite, rows)), f"{NON_FINITE} not finite", True),
        (sum(row.index in marks.growth for row in rows), f"{GROWTH} exploding", True),
        (sum(row.index in marks.zero for row in rows), f"{ZERO} all zero", True),
        (sum(row.index in marks.hooks for row in rows), f"{HOOK} hooks", False),
    ]
    return [
        Remark(f"{what}: {plural(count, 'node')}", alarming)
        for count, what, alarming in counted
        if count
    ]


def _findings(graph: TaskGraph, row: NodeRow) -> Iterator[Remark]:
    marks = graph.marks
    became = state(graph, row)
    if became not in {"", NOT_EXECUTED}:
        yield Remark(became, row.status not in {NodeStatus.READY, NodeStatus.RUNNING})
    if graph.difference is not None and row.index in graph.difference.nodes:
        differs = graph.difference.nodes[row.index]
        yield Remark(DIFFERENCES[differs], differs is not Differs.AFTERWARDS)
    yield from _nonfinite(graph, row)
    if row.index in marks.growth:
        yield Remark(f"{GROWTH} {text.TIMES}{text.rounded(marks.growth[row.index])}", True)
    if row.index in marks.zero:
        yield Remark(f"{ZERO} all zero", True)
    hooks = marks.hooks.get(row.index, ())
    if hooks:
        names = [text.shorten(hook.name, 24) for hook in hooks[:MOST_HOOKS]]
        more = [f"{len(hooks) - MOST_HOOKS} more"] * (len(hooks) > MOST_HOOKS)
        yield Remark(f"{HOOK} {', '.join([*names, *more])}", False)
    if row.index in graph.cut:
        fed, feeds = graph.cut[row.index]
        said = [f"{fed} more above"] * bool(fed) + [f"{feeds} more below"] * bool(feeds)
        yield Remark(f"{CUT} {', '.join(said)}", False)


def _nonfinite(graph: TaskGraph, row: NodeRow) -> Iterator[Remark]:
    kind = graph.marks.origins.get(row.index)
    first = " first" if row.index == graph.first_nonfinite else ""
    if kind in BEGINNINGS and (first or graph.moment is None):
        yield Remark(f"{NON_FINITE}{first or ' also'}: {BEGINNINGS[kind]}", True)
        first = ""
    elif kind is OriginKind.NODE and not first:
        first = " also"
    if row.nonfinite is not None and is_nonfinite(row):
        yield Remark(f"{NON_FINITE}{first} {nonfinite(*row.nonfinite)}", True)


def leaf_findings(graph: TaskGraph, leaf: Leaf) -> list[Remark]:
    """The same about a parameter's line."""
    found = [each for each in _findings(graph, leaf.row) if each.words != FAILED]
    if leaf.row.index in graph.marks.got_zeros:
        found.append(Remark(f"{ZERO} all zero", True))
    if (leaf.edge.producer, leaf.edge.output) in graph.marks.nonfinite and not any(
        each.words.startswith(NON_FINITE) for each in found
    ):
        found.append(Remark(f"{NON_FINITE} not finite", True))
    return found


def received(graph: TaskGraph, item: Item) -> str:
    """Shapes and dtype of the gradients a node receives, and how many were added up in a slot.

    A dtype that most gradients have is left out: the heading shows it. At a moment: what lies in
    the InputBuffer.
    """
    if item.kind is not ItemKind.NODE:
        return ""
    row = item.nodes[0].row
    if graph.moment is not None and row.index in graph.moment.waiting:
        inferred = MARK * graph.is_observed
        return f"holds {inferred}{size(graph.moment.waiting[row.index])}"
    shapes = row.input_shapes or ()
    said = write_shape(shapes[0]) if shapes else ""
    if len(set(shapes)) > 1:
        said += f", … {len(shapes)} in all"
    elif len(shapes) > 1:
        said = f"{len(shapes)} {text.TIMES} {said}"
    dtype = graph.marks.received.get(row.index, "")
    if dtype and dtype != graph.marks.dtype:
        said = f"{said} {dtype}"
    meeting = graph.meeting.get(row.index)
    return f"{MEETING}{meeting} {said}" if meeting else said


def about_item(graph: TaskGraph, item: Item) -> list[str]:
    """Everything about an item, line by line."""
    if item.kind is ItemKind.NODE:
        return _about_node(graph, item.nodes[0].row)
    rows = [node.row for node in item.nodes]
    lines = [item.title]
    if item.repeats > 1:
        each = plural(len(rows) // item.repeats, "node")
        lines.append(f"{item.repeats:,} equal blocks of {each}")
    lines.append(f"{len(rows):,} nodes, in execution {numbers(graph, rows) or 'not reached'}")
    lines.append(f"{duration(total_ns(rows))} in all")
    leaves = {leaf.row.index for node in item.nodes for leaf in node.leaves}
    if leaves:
        lines.append(plural(len(leaves), "parameter"))
    return lines + [finding.words for finding in findings(graph, item)]


def about_leaf(graph: TaskGraph, leaf: Leaf) -> list[str]:
    """Everything about a parameter's line, line by line."""
    lines = _about_node(graph, leaf.row)
    if leaf.row.parameter is not None:
        lines.insert(1, leaf.row.parameter)
    if leaf.uses > 1:
        lines.append(f"use {leaf.use} of {leaf.uses}: their gradients are added up")
    return lines


def about_link(graph: TaskGraph, link: EdgeBundle, items: Sequence[Item]) -> list[str]:
    """Every edge of a link, line by line."""
    names = {
        node.row.index: f"{graph.turn(node.row)} {node.row.short_name}".strip()
        for place in (link.producer, link.consumer)
        for node in items[place].nodes
    }
    lines = [_about_edge(graph, edge, names) for edge in link.edges[:MOST_EDGES]]
    if len(link.edges) > MOST_EDGES:
        lines.append(f"and {len(link.edges) - MOST_EDGES:,} more")
    return lines


def link_id(link: EdgeBundle) -> str:
    """The id of a link in a picture: that of its first edge."""
    edge = link.edges[0]
    if edge.is_call:
        return f"call-{edge.row.producer}-{edge.row.consumer}"
    return f"edge-{edge.row.producer}-{edge.row.output}"


def about_saved(row: SavedRow) -> str:
    """A saved tensor in a line."""
    nbytes = "" if row.nbytes is None else size(row.nbytes)
    known = [write_shape(row.shape), row.dtype, nbytes]
    return f"{SAVED} saved {row.name}  {'  '.join(filter(None, known))}".rstrip()


def total_ns(rows: Iterable[NodeRow]) -> int:
    """Time spent in nodes, in ns."""
    return sum(row.duration_ns or 0 for row in rows)


def _about_node(graph: TaskGraph, row: NodeRow) -> list[str]:
    marks = graph.marks
    lines = [f"{graph.turn(row)} {row.name}".strip()]
    if row.module:
        lines.append(f"module {row.module}")
    if row.line:
        lines.append(f"created by {row.line}")
    lines += _about_time(graph, row)
    if row.input_shapes:
        dtype = marks.received.get(row.index, "")
        shapes = ", ".join(map(write_shape, row.input_shapes))
        lines.append(f"receives {shapes} {dtype}".rstrip())
    if row.sequence_nr is not None:
        lines.append(f"sequence number {row.sequence_nr}")
    if state(graph, row):
        lines.append(state(graph, row))
    if graph.difference is not None and row.index in graph.difference.nodes:
        differs = graph.difference.nodes[row.index]
        lines.append(f"{differs}: {graph.difference.about.get(row.index, '')}")
    lines += _about_gradients(graph, row)
    lines += map(_about_hook, marks.hooks.get(row.index, ()))
    lines += map(about_saved, marks.saved.get(row.index, ()))
    return lines


def _about_time(graph: TaskGraph, row: NodeRow) -> Iterator[str]:
    if row.thread is not None:
        lane = graph.lanes[row.thread].name
        time = "" if row.duration_ns is None else f", {duration(row.duration_ns)}"
        yield f"{lane}{time}"
    if row.index in graph.marks.critical.members:
        yield "on the critical path"


def _about_gradients(graph: TaskGraph, row: NodeRow) -> Iterator[str]:
    marks = graph.marks
    if row.nonfinite is not None and is_nonfinite(row):
        yield f"{NON_FINITE} {nonfinite(*row.nonfinite)} in what it produced"
    if row.index in marks.growth:
        times = text.rounded(marks.growth[row.index])
        yield f"{GROWTH} the largest element of what it produced grew {times} times"
    if row.index in marks.zero:
        yield f"{ZERO} all it produced is zero"


def _about_hook(hook: HookCalls) -> str:
    times = f", {hook.calls} times" if hook.calls > 1 else ""
    changed = ", changed the gradient" if hook.changed else ""
    return f"{HOOK} {hook.kind} hook {hook.name}, {duration(hook.total_ns)}{times}{changed}"


def _about_edge(graph: TaskGraph, edge: Edge, names: dict[int, str]) -> str:
    row = edge.row
    at = row.producer, row.output
    if edge.is_call:
        return f"{names[row.producer]} calls the pass that begins at {names[row.consumer]}"
    line = f"{names[row.producer]}, output {row.output} → {names[row.consumer]}, input {row.slot}"
    gradient = f"{write_shape(edge.shape)} {graph.marks.dtypes.get(at, '')}".strip()
    if gradient:
        line += f": {gradient}"
    if edge.meeting > 1:
        line += f", one of {edge.meeting:,} that are added up"
    if at in graph.marks.nonfinite:
        line += f", {NON_FINITE} not finite"
    if at in graph.marks.zeros:
        line += f", {ZERO} all zero"
    if graph.difference is not None and at in graph.difference.edges:
        line += f", {graph.difference.edges[at]}"
    return line
