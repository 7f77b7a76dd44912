"""Which of the things that differ between two recordings come first.

Note [First divergence]
Something diverges where a node ran in one recording only, where it failed in one only, or where a
gradient is not the same. It comes first where nothing diverges in what the node was given, in
either recording: everything after it may be its consequence. There may be several such nodes; they
are listed in the order in which A ran them. Another order of execution is no difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.analysis.alignment import NOWHERE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz.analysis.alignment import Adjacency
    from agviz.analysis.diff_rows import Divergence
    from agviz.traces.rows import NodeRow

INPUT_ROLES: Final = ("root", "sum")
"""Roles of gradients that are measured of what a node is given."""


class Causes:
    """Which divergences are consequences of others."""

    def __init__(
        self, a: Adjacency, b: Adjacency, to_a: Sequence[int], divergences: Sequence[Divergence]
    ) -> None:
        self._graphs = a, b
        self._to_a = to_a
        self._whole: tuple[set[int], set[int]] = (set(), set())
        """Nodes of both sides that diverge as such."""
        self._outputs: tuple[set[tuple[int, int]], ...] = (set(), set())
        """Nodes and outputs whose gradients diverge."""
        self._inputs: set[int] = set()
        """Nodes of A of whose inputs a sum or a root's gradient diverges."""
        for each in divergences:
            for side, node in enumerate((each.a, each.b)):
                if node is None:
                    continue
                if each.role == "output":
                    self._outputs[side].add((node.index, each.slot))
                elif not each.role:
                    self._whole[side].add(node.index)
            if each.role in INPUT_ROLES and each.a is not None:
                self._inputs.add(each.a.index)
        self._turns = self._turns_in_a()

    def is_first(self, divergence: Divergence) -> bool:
        """Whether nothing diverges in what the node was given."""
        a, b = divergence.a, divergence.b
        if a is not None and a.index in self._inputs and divergence.role not in INPUT_ROLES:
            return False
        return not any(
            self._is_given_other(side, node) for side, node in enumerate((a, b)) if node is not None
        )

    def _is_given_other(self, side: int, node: NodeRow) -> bool:
        return any(
            producer in self._whole[side] or (producer, output) in self._outputs[side]
            for _, producer, output in self._graphs[side].incoming[node.index]
        )

    def reaches_leaf(self, a: NodeRow) -> bool:
        """Whether ``a`` is an AccumulateGrad that is given something else than its partner."""
        return a.is_leaf and (
            a.index in self._whole[0] or a.index in self._inputs or self._is_given_other(0, a)
        )

    def place(self, divergence: Divergence) -> tuple[float, float, bool, str, int]:
        """For sorting: when the node ran in A, or after what it would have run there."""
        a, b = divergence.a, divergence.b
        role = divergence.role not in {"", *INPUT_ROLES}, divergence.role, divergence.slot
        if a is not None:
            return (turn(a)[0], 0.0, *role)
        return (0.0, 0.0, *role) if b is None else (self._turns[b.index], turn(b)[0], *role)

    def _turns_in_a(self) -> list[float]:
        """By node of B: when its partner ran in A; else half a step after what it waits for."""
        a, b = self._graphs
        found = [0.0] * len(b.nodes)
        for node in sorted(b.nodes, key=turn):
            partner = self._to_a[node.index]
            if partner != NOWHERE:
                found[node.index] = turn(a.nodes[partner])[0]
            else:
                before = [found[producer] for _, producer, _ in b.incoming[node.index]]
                last = max(before, default=0.0)
                found[node.index] = last + (0.5 if last % 1 == 0 else 0.0)
        return found


def turn(node: NodeRow) -> tuple[float, int]:
    """For sorting nodes in the order in which they ran."""
    return float("inf") if node.order is None else node.order, node.index
