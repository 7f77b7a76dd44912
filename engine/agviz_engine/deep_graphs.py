"""Graphs so deep that torch overflows the stack when it frees them, once Python has seen them.

Note [Freeing a deep graph]
~~~~~~~~~~~~~~~~~~~~~~~~~~~
Torch frees a graph that only C++ knows node by node. A node that Python has seen keeps its Python
object (``PyObjectPreservation``), and then the end of one node is nested in that of the one before
it: from some 50,000 nodes on a path the process dies, with or without this engine. Ours sees every
node it runs, so a program that works natively would die here.

So of a graph that deep every path is held at short distances. What torch then frees in one go ends
at the next held node; that one is let go of here, once nobody else holds it: when the tensor dies
that was differentiated, before the next backward pass, and whenever Python looks for garbage.

Python reports a death before it lets go of what the tensor holds, so the interpreter is asked to
come back to it: a pending call runs on the main thread between two bytecodes.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import gc
import sys
import threading
import weakref
from typing import TYPE_CHECKING, Final

from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch.autograd.graph import GradientEdge, Node

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
_lock = threading.RLock()
_ending = threading.Event()
_roots: dict[int, weakref.ref[Tensor]] = {}
"""Tensors that were differentiated and are alive, by ``id``."""


def hold(roots: Iterable[NodeRef], nodes: Sequence[NodeRef]) -> None:
    """Hold the paths of a graph, if it is deep.

    Args:
        roots: where it begins.
        nodes: all of it; each is at its own ``index``.
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
            if _at_collection not in gc.callbacks and not _ending.is_set():
                gc.callbacks.append(_at_collection)


def let_go() -> None:
    """Let go of what nobody else holds any more."""
    if not _graphs or not _lock.acquire(blocking=False):
        return
    try:
        for graph in _graphs:
            while graph and sys.getrefcount(graph[-1]) == _HELD_HERE_ONLY:
                _held.discard(graph[-1])
                graph.pop()
        _graphs[:] = [graph for graph in _graphs if graph]
    finally:
        _lock.release()


def let_go_with(roots: Iterable[Tensor | GradientEdge]) -> None:
    """While graphs are held: let go of what nobody else holds soon after one of ``roots`` dies."""
    if not _graphs or _ending.is_set():
        return
    for key, known in list(_roots.items()):
        if known() is None:
            _roots.pop(key, None)
    for root in roots:
        if isinstance(root, Tensor) and id(root) not in _roots:
            _roots[id(root)] = _Root(root, _when_it_died)


class _Root(weakref.ref[Tensor]):
    """A tensor that was differentiated."""

    _as_parameter_ = 0  # what ctypes takes it for


def _pending_call(_: int | None) -> int:
    if not _ending.is_set():
        let_go()
    return 0


_when_it_died: Final = functools.partial(
    ctypes.pythonapi.Py_AddPendingCall,
    ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_pending_call),
    None,
)
"""No Python code: the interpreter would come back to the call before this ends."""


@atexit.register
def _end() -> None:
    """At the very end there is no interpreter left that could come back, nor are the names here."""
    _ending.set()
    _roots.clear()
    if _at_collection in gc.callbacks:
        gc.callbacks.remove(_at_collection)


def _at_collection(phase: str, _info: dict[str, int]) -> None:
    if phase == "start":
        let_go()
