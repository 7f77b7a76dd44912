"""Graphs so deep that torch overflows the stack when it frees them, once Python has seen them.

Note [Freeing a deep graph]
~~~~~~~~~~~~~~~~~~~~~~~~~~~
Torch frees a graph that only C++ knows node by node. A node that Python has seen keeps its Python
object (``PyObjectPreservation``), and then the end of one node is nested in that of the one before
it: from some 50,000 nodes on a path the process dies, with or without this engine. Ours sees every
node it runs, so a program that works natively would die here.

So of a graph that deep every path is held at short distances. What torch then frees in one go ends
at the next held node; that one is let go of here, once nobody else holds it: before the next
backward pass, and whenever Python looks for garbage.
"""

from __future__ import annotations

import gc
import sys
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch.autograd.graph import Node

    from agviz_engine.node import NodeRef

DEEP = 8_192
"""Nodes on the longest path from which on a graph is held."""
_DISTANCE_BITS = 10
"""Paths are held every 1,024 nodes."""
_HELD_HERE_ONLY = 3
"""References to a node that nobody else holds: ``_held``'s, its graph's and ``getrefcount``'s."""

_held: set[Node] = set()
_graphs: list[list[Node]] = []
"""The held nodes of each graph, those nearest to the leaves first."""
_lock = threading.Lock()


def hold(roots: Iterable[NodeRef], nodes: Sequence[NodeRef]) -> None:
    """Hold the paths of a graph, if it is deep.

    Args:
        roots: where it begins.
        nodes: all of it; each stands at its own ``index``.
    """
    if all(ref.topological_nr < DEEP for ref in roots):
        return
    stretch = [ref.topological_nr >> _DISTANCE_BITS for ref in nodes]
    found: dict[Node, int] = {}
    for ref in nodes:
        here = stretch[ref.index]
        for edge in ref.next_edges:
            if edge is not None and stretch[edge[0].index] != here:
                found[edge[0].node] = stretch[edge[0].index]
    with _lock:
        new = sorted(found.keys() - _held, key=found.__getitem__)
        if new:
            _held.update(new)
            _graphs.append(new)
            if _at_collection not in gc.callbacks:
                gc.callbacks.append(_at_collection)


def let_go() -> None:
    """Let go of what nobody else holds any more."""
    if not _graphs or not _lock.acquire(blocking=False):
        return
    try:
        for graph in _graphs:
            while graph and sys.getrefcount(graph[-1]) == _HELD_HERE_ONLY:
                _held.remove(graph[-1])
                graph.pop()
        _graphs[:] = [graph for graph in _graphs if graph]
    finally:
        _lock.release()


def _at_collection(phase: str, _info: dict[str, int]) -> None:
    if phase == "start":
        let_go()
