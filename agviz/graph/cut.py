"""A part of a graph: the neighbourhood of a node, or the way to a parameter."""

from __future__ import annotations

import difflib
from collections import Counter, defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from agviz.errors import AgvizError
from agviz.words.safe import clean
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.graph.model import Node, TaskGraph
    from agviz.traces.rows import NodeRow

NAMES_OFFERED = 3


def around(graph: TaskGraph, wanted: str | int, depth: int) -> TaskGraph:
    """A node and what is at most ``depth`` edges away from it, in any direction.

    Raises:
        agviz.errors.AgvizError: there is no such node.
    """
    centre = find_node(graph, wanted)
    neighbours: defaultdict[int, list[int]] = defaultdict(list)
    for edge in graph.edges:
        neighbours[edge.row.producer].append(edge.row.consumer)
        neighbours[edge.row.consumer].append(edge.row.producer)
    kept = reached = {centre.row.index}
    for _ in range(depth):
        reached = {other for index in reached for other in neighbours[index]} - kept
        if not reached:
            break
        kept = kept | reached
    row = centre.row
    name = f"{graph.turn(row)} {row.short_name}".lstrip()
    return _part(graph, kept, f"{plural(depth, 'edge')} around {clean(name)}")


def leading_to(graph: TaskGraph, parameter: str) -> TaskGraph:
    """Every node through which gradients come to a parameter.

    Raises:
        agviz.errors.AgvizError: there is no such parameter.
    """
    feeding: defaultdict[int, list[int]] = defaultdict(list)
    for edge in graph.edges:
        feeding[edge.row.consumer].append(edge.row.producer)
    waiting = [
        node.row.index
        for node in graph.nodes
        if node.row.parameter == parameter
        or any(leaf.row.parameter == parameter for leaf in node.leaves)
    ]
    if not waiting:
        raise AgvizError(
            f"No gradient comes to {clean(parameter)!r} in this graph"
            f"{_offer(parameter, parameters(graph))}; `agviz why` gives the reason."
        )
    kept = set(waiting)
    while waiting:
        for producer in feeding[waiting.pop()]:
            if producer not in kept:
                kept.add(producer)
                waiting.append(producer)
    alone = tuple(
        replace(node, leaves=tuple(x for x in node.leaves if x.row.parameter == parameter))
        for node in graph.nodes
    )
    return _part(replace(graph, nodes=alone), kept, f"what leads to {clean(parameter)}")


def find_node(graph: TaskGraph, wanted: str | int) -> Node:
    """A node by its number in execution, or the first by its name, module or parameter.

    Raises:
        agviz.errors.AgvizError: there is no such node.
    """
    nodes = sorted(graph.nodes, key=lambda node: (node.row.order is None, node.row.order or 0))
    for node in nodes:
        if str(wanted) in {graph.turn(row) for row in _rows(node)} - {""}:
            return node
    if not str(wanted).isdecimal():
        for node in nodes:
            names = {name for row in _rows(node) for name in (row.name, row.short_name)}
            names |= {row.parameter or "" for row in _rows(node)} | {node.row.module or ""}
            if wanted in names:
                return node
        known = {node.row.short_name for node in nodes} | {node.row.module or "" for node in nodes}
        offered = _offer(str(wanted), known | parameters(graph))
        raise AgvizError(f"This graph holds no node {clean(str(wanted))!r}{offered}.")
    ran = sum(
        row.order is not None for row in {r.index: r for n in nodes for r in _rows(n)}.values()
    )
    raise AgvizError(f"No node of this graph was number {wanted} to run: {ran:,} ran.")


def parameters(graph: TaskGraph) -> set[str]:
    """The names of all parameters to which gradients come."""
    rows = (row for node in graph.nodes for row in _rows(node))
    return {row.parameter for row in rows if row.parameter is not None}


def _rows(node: Node) -> Iterator[NodeRow]:
    yield node.row
    for leaf in node.leaves:
        yield leaf.row


def _offer(wanted: str, known: set[str]) -> str:
    close = difflib.get_close_matches(wanted, sorted(known - {""}), NAMES_OFFERED, 0.5)
    return f"; there is {', '.join(map(clean, close))}" if close else ""


def _part(graph: TaskGraph, kept: set[int], what: str) -> TaskGraph:
    """The nodes of which the index is in ``kept``, and the edges between them."""
    fed: Counter[int] = Counter()
    feeds: Counter[int] = Counter()
    for edge in graph.edges:
        ends = edge.row.producer, edge.row.consumer
        if ends[1] in kept and ends[0] not in kept:
            fed[ends[1]] += 1
        if ends[0] in kept and ends[1] not in kept:
            feeds[ends[0]] += 1
    nodes = tuple(node for node in graph.nodes if node.row.index in kept)
    leaves = {leaf.row.index for node in nodes for leaf in node.leaves}
    shown = len(nodes) + len(leaves)
    note = f"{what}: {shown:,} of {plural(graph.size, 'node')}"
    return replace(
        graph,
        nodes=nodes,
        edges=tuple(
            edge for edge in graph.edges if edge.row.producer in kept and edge.row.consumer in kept
        ),
        cut={index: (fed[index], feeds[index]) for index in sorted({*fed, *feeds})},
        notes=(*graph.notes, note),
    )
