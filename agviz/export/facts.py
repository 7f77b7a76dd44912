"""What is worth saying about a node, an edge or a group, in plain words: tooltips and findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agviz.export import text
from agviz.graph.items import Kind
from agviz.traces.rows import GraphTaskStatus, NodeStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agviz.graph.items import Item, Link
    from agviz.graph.model import Edge, Graph, Leaf
    from agviz.traces.rows import NodeRow

PARAMETER = "θ"
NON_FINITE = "⚠"
MEETING = "⊕"
FAILED = "✗ failed"
NOT_EXECUTED = "○ not executed"
STATUS_MARKS = {
    NodeStatus.FAILED: FAILED,
    NodeStatus.SKIPPED: "⊘ skipped",
    NodeStatus.RUNNING: "▶ running",
    NodeStatus.READY: "… ready",
    NodeStatus.WAITING: "… waiting",
    NodeStatus.UNKNOWN: "? not recorded",
}
MOST_EDGES = 8
"""Edges written out in the tooltip of a link."""


def has_nonfinite(item: Item) -> bool:
    """Whether a non-finite element was found in an output of its nodes."""
    return any(map(_is_nonfinite, (node.row for node in item.nodes)))


def is_executed(item: Item) -> bool:
    """Whether any of its nodes was taken up."""
    return any(node.row.order is not None for node in item.nodes)


def is_alarming(graph: Graph, row: NodeRow) -> bool:
    """Whether it failed, or was the first to produce a non-finite gradient."""
    return row.status is NodeStatus.FAILED or row.index == graph.first_nonfinite


def numbers(rows: Iterable[NodeRow]) -> str:
    """The execution number, or the first and the last; empty where nothing was executed."""
    orders = [row.order for row in rows if row.order is not None]
    if not orders:
        return ""
    first, last = min(orders), max(orders)
    return str(first) if first == last else f"{first}{text.DASH}{last}"


def state(graph: Graph, row: NodeRow) -> str:
    """What became of a node that did not simply run; empty for one that did."""
    ended = graph.task.status is not GraphTaskStatus.RUNNING
    if ended and row.status in {NodeStatus.WAITING, NodeStatus.READY}:
        return NOT_EXECUTED
    return STATUS_MARKS.get(row.status, "")


def findings(graph: Graph, item: Item) -> list[str]:
    """What a reader should not miss about an item, most important first."""
    rows = [node.row for node in item.nodes]
    if item.kind is not Kind.NODE:
        counted = [
            (sum(row.status is NodeStatus.FAILED for row in rows), FAILED),
            (sum(map(_is_nonfinite, rows)), f"{NON_FINITE} not finite"),
        ]
        return [f"{what}: {count:,} nodes" for count, what in counted if count]
    (row,) = rows
    became = state(graph, row)
    said = [became] if became not in {"", NOT_EXECUTED} else []
    if row.nonfinite is not None and _is_nonfinite(row):
        first = " first" if row.index == graph.first_nonfinite else ""
        said.append(f"{NON_FINITE}{first} {text.nonfinite(row.nonfinite)}")
    return said


def received(graph: Graph, item: Item) -> str:
    """Shapes of the gradients a node receives, and how many were added up in a slot."""
    if item.kind is not Kind.NODE:
        return ""
    row = item.nodes[0].row
    shapes = row.input_shapes or ()
    said = text.shape(shapes[0]) if shapes else ""
    if len(set(shapes)) > 1:
        said += f", … {len(shapes)} in all"
    elif len(shapes) > 1:
        said = f"{len(shapes)} {text.TIMES} {said}"
    meeting = graph.meeting.get(row.index)
    return f"{MEETING}{meeting} {said}" if meeting else said


def about_item(graph: Graph, item: Item) -> list[str]:
    """Everything about an item, line by line."""
    if item.kind is Kind.NODE:
        return _about_node(graph, item.nodes[0].row)
    rows = [node.row for node in item.nodes]
    lines = [item.title]
    if item.repeats > 1:
        lines.append(f"{item.repeats:,} equal blocks of {len(rows) // item.repeats:,} nodes")
    lines.append(f"{len(rows):,} nodes, in execution {numbers(rows) or 'not reached'}")
    lines.append(f"{text.duration(total_ns(rows))} in all")
    leaves = {leaf.row.index for node in item.nodes for leaf in node.leaves}
    if leaves:
        lines.append(f"{len(leaves):,} parameters")
    return lines + findings(graph, item)


def about_leaf(graph: Graph, leaf: Leaf) -> list[str]:
    """Everything about a parameter's line, line by line."""
    lines = _about_node(graph, leaf.row)
    if leaf.row.parameter is not None:
        lines.insert(1, leaf.row.parameter)
    if leaf.uses > 1:
        lines.append(f"use {leaf.use} of {leaf.uses}: their gradients are added up")
    return lines


def about_link(link: Link, items: Sequence[Item]) -> list[str]:
    """Every edge of a link, line by line."""
    names = {
        node.row.index: f"{numbers([node.row])} {node.row.short_name}".strip()
        for place in (link.producer, link.consumer)
        for node in items[place].nodes
    }
    return [_about_edge(edge, names) for edge in link.edges]


def total_ns(rows: Iterable[NodeRow]) -> int:
    """Time spent in nodes, in ns."""
    return sum(row.duration_ns or 0 for row in rows)


def _is_nonfinite(row: NodeRow) -> bool:
    return row.nonfinite is not None and any(row.nonfinite)


def _about_node(graph: Graph, row: NodeRow) -> list[str]:
    lines = [f"{numbers([row])} {row.name}".strip()]
    if row.module:
        lines.append(f"module {row.module}")
    if row.line:
        lines.append(f"created by {row.line}")
    if row.thread is not None:
        lane = graph.lanes[row.thread].name
        time = "" if row.duration_ns is None else f", {text.duration(row.duration_ns)}"
        lines.append(f"{lane}{time}")
    if row.input_shapes:
        lines.append("receives " + ", ".join(map(text.shape, row.input_shapes)))
    if row.sequence_nr is not None:
        lines.append(f"sequence number {row.sequence_nr}")
    if state(graph, row):
        lines.append(state(graph, row))
    if row.nonfinite is not None and _is_nonfinite(row):
        lines.append(f"{NON_FINITE} {text.nonfinite(row.nonfinite)} in what it produced")
    return lines


def _about_edge(edge: Edge, names: dict[int, str]) -> str:
    row = edge.row
    line = f"{names[row.producer]}, output {row.output} → {names[row.consumer]}, input {row.slot}"
    if edge.shape is not None:
        line += f": {text.shape(edge.shape)}"
    if edge.meeting > 1:
        line += f", one of {edge.meeting:,} that are added up"
    return line
