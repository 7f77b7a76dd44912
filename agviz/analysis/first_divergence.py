"""Which of the things that differ between two recordings come first.

Note [First divergence]
Something diverges where a node ran in one recording only, where it failed in one only, or where a
gradient is not the same. It comes first where nothing diverges in what the node was given, in
either recording: everything after it may be its consequence. There may be several such nodes; they
are listed in the order in which A ran them. Another order of execution is no difference.
"""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING, Final

from agviz.analysis.alignment import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz.analysis.alignment import Adjacency
    from agviz.analysis.diff_rows import Divergence
    from agviz.traces.rows import NodeRow

INPUT_ROLES: Final = ("root", "sum")
"""Roles of gradients that are measured of what a node is given."""
_NEVER: Final = math.inf


class Causes:
    """Which divergences are consequences of others; :meth:`add` has to have all of them.

    Nodes are meant by their indexes, :data:`NOWHERE` in a graph where there is none.

    Args:
        a: one graph.
        b: the other one.
        to_a: the partner in A, by node of B.
        orders: by node of A, and of B: its place in the order of execution; 0: it never ran.
    """

    def __init__(
        self,
        a: Adjacency,
        b: Adjacency,
        to_a: Sequence[int],
        orders: tuple[Sequence[int], Sequence[int]],
    ) -> None:
        self._graphs = a, b
        self._to_a = to_a
        self._orders = orders
        self._whole: tuple[set[int], set[int]] = (set(), set())
        """Nodes of both sides that diverge as such."""
        self._outputs: tuple[set[int], set[int]] = (set(), set())
        """Nodes and outputs whose gradients diverge, each as one number."""
        self._inputs: set[int] = set()
        """Nodes of A of whose inputs a sum or a root's gradient diverges."""
        self._turns = self._turns_in_a()

    def add(self, a: int, b: int, role: str, slot: int) -> None:
        """Take note of what diverges; ``role`` is empty where the node as such does."""
        for side, node in enumerate((a, b)):
            if node == NOWHERE:
                continue
            if role == "output":
                self._outputs[side].add(_output(node, slot))
            elif not role:
                self._whole[side].add(node)
        if role in INPUT_ROLES and a != NOWHERE:
            self._inputs.add(a)

    def is_first(self, a: int, b: int, role: str) -> bool:
        """Whether nothing diverges in what the node was given."""
        if a in self._inputs and role not in INPUT_ROLES:
            return False
        return not any(
            self._is_given_other(side, node) for side, node in enumerate((a, b)) if node != NOWHERE
        )

    def _is_given_other(self, side: int, node: int) -> bool:
        return any(
            producer in self._whole[side] or _output(producer, output) in self._outputs[side]
            for _, producer, output in self._graphs[side].incoming(node)
        )

    def reaches_leaf(self, a: int) -> bool:
        """Whether ``a`` is an AccumulateGrad that is given something else than its partner."""
        return self._graphs[0][a].is_leaf and (
            a in self._whole[0] or a in self._inputs or self._is_given_other(0, a)
        )

    def turn(self, a: int, b: int) -> tuple[float, float]:
        """For sorting: when the node ran in A, or after what it would have run there."""
        if a != NOWHERE:
            return self._orders[0][a] or _NEVER, 0.0
        return self._turns[b], self._orders[1][b] or _NEVER

    def _turns_in_a(self) -> Sequence[float]:
        """By node of B: when its partner ran in A; else half a step after what it waits for."""
        graph = self._graphs[1]
        of_a, of_b = self._orders
        found = array("d", bytes(8 * len(graph)))
        for node in sorted(range(len(graph)), key=lambda node: of_b[node] or _NEVER):
            partner = self._to_a[node]
            if partner != NOWHERE:
                found[node] = of_a[partner] or _NEVER
            else:
                last = max((found[producer] for _, producer, _ in graph.incoming(node)), default=0)
                found[node] = last + (0.5 if last % 1 == 0 else 0.0)
        return found


def _output(node: int, output: int) -> int:
    return node << 32 | output


def role_turn(divergence: Divergence) -> tuple[bool, str, int]:
    """For sorting what diverges at one node."""
    return divergence.role not in {"", *INPUT_ROLES}, divergence.role, divergence.slot


def turn(node: NodeRow) -> tuple[float, int]:
    """For sorting nodes in the order in which they ran."""
    return _NEVER if node.order is None else node.order, node.index
