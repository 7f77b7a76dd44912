"""The graph of a loss that was just computed: where gradients would come if backward were called.

Nothing is run and nothing is changed.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from agviz.measure.health import unseen
from agviz.zero_rules import zeros
from agviz_engine import deep_graphs
from agviz_engine.located_node import node_ref

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor
    from torch.autograd.graph import Node

    from agviz.analysis.causes import Cause
    from agviz_engine.node import NodeRef


def root_nodes(tensors: Iterable[Tensor]) -> list[Node]:
    """The nodes, each once, at which a backward pass from these tensors would begin."""
    return list(
        dict.fromkeys(
            torch.autograd.graph.get_gradient_edge(tensor).node
            for tensor in tensors
            if tensor.requires_grad
        )
    )


def walk(roots: Sequence[Node]) -> list[NodeRef]:
    """All nodes, in the order in which they are met: ``found[i].index == i``; the roots first."""
    found: list[NodeRef] = []
    refs: dict[Node, NodeRef] = {}

    def ref_of(node: Node) -> NodeRef:
        ref = refs.get(node)
        if ref is None:
            ref = refs[node] = node_ref(node, len(found))
            found.append(ref)
        return ref

    first = [ref_of(root) for root in roots]
    for ref in found:  # it grows meanwhile
        following: Any = ref.node.next_functions
        ref.next_edges = tuple(
            None if consumer is None else (ref_of(consumer), slot) for consumer, slot in following
        )
    deep_graphs.hold(first, found)
    return found


class ZeroSource(NamedTuple):
    """A node that is sure to put out zeros towards a parameter."""

    cause: Cause
    node: NodeRef


class LiveGraph:
    """What can be reached from some tensors.

    Args:
        roots: those of which backward is to be called; such as require no gradient are left out.
    """

    def __init__(self, roots: Iterable[Tensor]) -> None:
        first = root_nodes(roots)
        self.nodes = walk(first)
        """In the order in which they were met, from the roots: ``nodes[i].index == i``."""
        self._producers: list[list[int]] = [[] for _ in self.nodes]
        for ref in self.nodes:
            for edge in ref.next_edges:
                if edge is not None:
                    self._producers[edge[0].index].append(ref.index)
        self._stops: dict[int, list[ZeroSource]] = {}
        """What puts out zeros towards a node."""
        self._alive = set(range(len(first)))
        """Nodes to which something else than zeros may come."""
        self._follow()
        self._leaves = {id(ref.node.variable): ref for ref in self.nodes if ref.is_accumulate_grad}

    def leaf(self, parameter: Tensor) -> NodeRef | None:
        """Its AccumulateGrad; None where the graph does not hold it."""
        return self._leaves.get(id(parameter))

    def stop(self, leaf: NodeRef) -> ZeroSource | None:
        """The node that lets nothing through to ``leaf``; None where something may come there.

        Of several, the first met from the roots.
        """
        if leaf.index in self._alive:
            return None
        stops: list[ZeroSource] = []
        seen = {leaf.index}
        waiting = deque(seen)
        while waiting:
            index = waiting.popleft()
            stops += self._stops.get(index, [])
            for producer in self._producers[index]:
                if producer not in seen and producer not in self._alive:
                    seen.add(producer)
                    waiting.append(producer)
        return min(stops, key=lambda stop: stop.node.index, default=None)

    @property
    def sequence_nrs(self) -> frozenset[int]:
        """Of all nodes but the leaves."""
        return frozenset(ref.sequence_nr for ref in self.nodes if not ref.is_accumulate_grad)

    def _follow(self) -> None:
        waiting = list(self._alive)
        with unseen():
            while waiting:
                ref = self.nodes[waiting.pop()]
                stopped = zeros(ref.node)
                for output, edge in enumerate(ref.next_edges):
                    if edge is None:
                        continue
                    index = edge[0].index
                    if output in stopped:
                        stop = ZeroSource(stopped[output], ref)
                        self._stops.setdefault(index, []).append(stop)
                    elif index not in self._alive:
                        self._alive.add(index)
                        waiting.append(index)
