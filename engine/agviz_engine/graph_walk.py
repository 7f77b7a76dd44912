"""Walk the graph of a graph task: its nodes, their edges, how many lead to each."""

from __future__ import annotations

import contextlib
import gc
from typing import TYPE_CHECKING, TypeAlias

from agviz_engine import events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch.autograd.graph import Node

    from agviz_engine.graph_task import Edge, GraphTask
    from agviz_engine.node import NodeRef

Make: TypeAlias = "Callable[[Node, int], NodeRef]"
"""Makes the reference to a node, which gets this index."""


@contextlib.contextmanager
def collecting_nothing() -> Iterator[None]:
    """Let nobody look for garbage while what is made is there to stay: the search is in vain."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


@collecting_nothing()
def walk(
    graph_task: GraphTask,
    roots: Sequence[tuple[Node, int]],
    make: Make,
    policy: Callable[[Node], int] | None,
) -> int:
    """Reach every node once, last found first (``Engine::compute_dependencies``).

    Args:
        graph_task: gets ``nodes``, ``dependencies`` and ``root_edges``; has a GraphRoot already
            where there are several roots.
        roots: node and output number for each tensor that is differentiated.
        make: makes a reference to each node.
        policy: gives the device of a node; None: all run on the calling thread.

    Returns:
        The number of edges.
    """
    nodes, dependencies = graph_task.nodes, graph_task.dependencies
    refs: dict[Node, NodeRef] = {}
    oldest = graph_task.min_topological_nr
    stack = _add_roots(graph_task, roots, refs, make)
    count = 0
    while stack:
        ref = stack.pop()
        if policy is not None:
            ref.device = policy(ref.node)
            graph_task.threaded = graph_task.threaded or ref.device != events.CPU_QUEUE
        if oldest and ref.topological_nr < oldest:
            continue  # older than every input: no path leads from it to one
        next_edges: list[Edge | None] = []
        for consumer, nr in ref.node.next_functions:
            if consumer is None:
                next_edges.append(None)
                continue
            child = refs.get(consumer)
            if child is None:
                child = refs[consumer] = make(consumer, len(nodes))
                nodes.append(child)
                dependencies.append(1)
                stack.append(child)
            else:
                dependencies[child.index] += 1
            count += 1
            next_edges.append((child, nr))
        ref.next_edges = tuple(next_edges)
    return count


def _add_roots(
    graph_task: GraphTask,
    roots: Sequence[tuple[Node, int]],
    refs: dict[Node, NodeRef],
    make: Make,
) -> list[NodeRef]:
    nodes = graph_task.nodes
    for node, nr in roots:
        ref = refs.get(node)
        if ref is None:
            ref = refs[node] = graph_task.add(make(node, len(nodes)))
        graph_task.root_edges.append((ref, nr))
    if len(roots) != 1:
        nodes[0].next_edges = tuple(graph_task.root_edges)
        for ref, _ in graph_task.root_edges:
            graph_task.dependencies[ref.index] += 1
    return list(refs.values())
