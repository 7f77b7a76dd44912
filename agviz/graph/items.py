"""What is in a picture: single nodes, groups folded into one, and the links between them."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from agviz.graph.view import By

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agviz.graph.model import Edge, Node, TaskGraph


DEEPEST = 12
"""Modules within modules; what is deeper keeps its path in its name."""


class ItemKind(StrEnum):
    """Why the nodes of an item are drawn together."""

    NODE = "node"
    """One node."""
    REPEAT = "repeat"
    """Blocks of the same structure one after the other: layers, time steps."""
    CHAIN = "chain"
    """Nodes in a row, with their side branches that end at a parameter."""
    MODULE = "module"
    """One call of a module."""
    RANGE = "range"
    """Nodes that follow each other in execution, where nothing else was left to fold by."""


@dataclass(frozen=True, slots=True)
class Item:
    """One thing to draw."""

    kind: ItemKind
    nodes: tuple[Node, ...]
    """Producers before consumers."""
    module: str | None
    """Path of the innermost module that all of its nodes belong to, or what else they are grouped
    by (:class:`agviz.graph.view.By`)."""
    title: str = ""
    """What is folded, e.g. ``blocks.10 … blocks.0``; empty for a single node."""
    repeats: int = 1
    """Number of equal blocks in it."""

    @property
    def index(self) -> int:
        """Index of its first node, by which the item is known."""
        return self.nodes[0].row.index


@dataclass(frozen=True, slots=True)
class EdgeBundle:
    """All edges from one item to another."""

    producer: int
    """Position of the item."""
    consumer: int
    edges: tuple[Edge, ...]


def single_items(graph: TaskGraph, by: By = By.MODULE) -> list[Item]:
    """One item for each node of the graph, in its order."""
    groups = _groups(graph, by)
    frames = pass_frames(graph, by)
    return [
        Item(
            ItemKind.NODE,
            (node,),
            _within(frames.get(node.row.graph_task), groups.get(node.row.index)),
        )
        for node in graph.nodes
    ]


def pass_frames(graph: TaskGraph, by: By) -> dict[int, str]:
    """The group around each pass that a node called, within that of the node, by graph task."""
    groups = _groups(graph, by) if graph.inside else {}
    rows = {node.row.index: node.row for node in graph.nodes} if graph.inside else {}
    frames: dict[int, str] = {}
    for number, inner in graph.inside.items():
        maker = rows.get(inner.maker)
        name = "another node" if maker is None else maker.short_name
        call = "" if inner.task.accumulate_grad else "grad(), "
        own = f"{call}pass {number} in {name.replace('.', '·')}"
        around = None
        if maker is not None:
            around = _within(frames.get(maker.graph_task), groups.get(inner.maker))
        frames[number] = _within(around, own) or own
    return frames


def _within(around: str | None, path: str | None) -> str | None:
    return ".".join(filter(None, (around, path))) or None


def _groups(graph: TaskGraph, by: By) -> dict[int, str | None]:
    """What each node is grouped by, within its pass."""
    if by is By.MODULE:
        return {node.row.index: node.row.module for node in graph.nodes}
    if by is By.EXECUTION:
        return {}
    stays = _stays(graph)
    makers = {number: stays.get(inner.maker) for number, inner in graph.inside.items()}
    return {
        node.row.index: stay
        for node in graph.nodes
        if (stay := stays.get(node.row.index)) != makers.get(node.row.graph_task)
    }


def _stays(graph: TaskGraph) -> dict[int, str]:
    """For every node that was taken up: the thread that did, and for the how manieth time.

    Gradients that leave a thread and come back to it begin another stay there, so that no stay is
    left and entered again.
    """
    producers: defaultdict[int, list[int]] = defaultdict(list)
    for edge in graph.edges:
        producers[edge.row.consumer].append(edge.row.producer)
    threads = {node.row.index: node.row.thread for node in graph.nodes}
    changes: dict[int, int] = {}
    for node in graph.nodes:
        index = node.row.index
        changes[index] = max(
            (
                changes.get(producer, 0) + (threads[producer] != threads[index])
                for producer in producers[index]
            ),
            default=0,
        )
    found: dict[int, str] = {}
    numbers: dict[tuple[int, int], int] = {}
    known: Counter[int] = Counter()
    for node in graph.nodes:
        thread = node.row.thread
        if thread is None:
            continue
        stay = thread, changes[node.row.index]
        if stay not in numbers:
            known[thread] += 1
            numbers[stay] = known[thread]
        again = f", stay {numbers[stay]}" if numbers[stay] > 1 else ""
        found[node.row.index] = graph.lanes[thread].name + again
    return found


def links_between(items: Sequence[Item], edges: Iterable[Edge]) -> list[EdgeBundle]:
    """The links between items, by producer and consumer; edges within an item are left out."""
    item_of = {node.row.index: place for place, item in enumerate(items) for node in item.nodes}
    gathered: defaultdict[tuple[int, int], list[Edge]] = defaultdict(list)
    for edge in edges:
        ends = item_of[edge.row.producer], item_of[edge.row.consumer]
        if ends[0] != ends[1]:
            gathered[ends].append(edge)
    return [EdgeBundle(*ends, tuple(gathered[ends])) for ends in sorted(gathered)]


def in_order(items: Sequence[Item], edges: Iterable[Edge], graph: TaskGraph) -> list[Item]:
    """The items with producers before consumers, otherwise in the order of the graph's nodes."""
    place = {node.row.index: place for place, node in enumerate(graph.nodes)}
    following: list[list[int]] = [[] for _ in items]
    missing = [0] * len(items)
    for link in links_between(items, edges):
        following[link.producer].append(link.consumer)
        missing[link.consumer] += 1
    ready = [(place[item.index], i) for i, item in enumerate(items) if not missing[i]]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, current = heapq.heappop(ready)
        order.append(current)
        for consumer in following[current]:
            missing[consumer] -= 1
            if not missing[consumer]:
                heapq.heappush(ready, (place[items[consumer].index], consumer))
    left = set(range(len(items))).difference(order)
    return [items[i] for i in [*order, *sorted(left)]]


def common_module(modules: Iterable[str | None]) -> str | None:
    """The innermost module that holds all of ``modules``; None where there is none."""
    common: list[str] | None = None
    for module in modules:
        parts = module.split(".") if module else []
        if common is None:
            common = parts
        elif parts != common:
            length = 0
            while length < min(len(parts), len(common)) and parts[length] == common[length]:
                length += 1
            common = common[:length]
        if not common:
            return None
    return ".".join(common) if common else None


def ancestry(module: str | None) -> list[str]:
    """The module and all that contain it, outermost first, as far as frames go."""
    parts = module.split(".") if module else []
    return [".".join(parts[: depth + 1]) for depth in range(min(len(parts), DEEPEST))]
