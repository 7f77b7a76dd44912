"""Which node of one graph is which of another.

Note [Node key]
A node is known by its name, the module that made it, its parameter and what uses that
(AccumulateGrad), and the shapes of the gradients it gets. Where several are alike, it is known by
its position in the graph: which output of which aligned node leads to it, or which input of one it
leads to. Numbers that change from run to run or when a layer comes in between (index, sequence
number) are no part of it. Aligned are, in
this order:

1. nodes of a module or parameter that occur once in both graphs (all four are equal);
2. neighbours of aligned nodes, on the same output or the same input, that are equal in all four;
3. neighbours that are equal but for module and parameter: layers after an inserted one have other
   numbers in their paths;
4. neighbours that are equal but for shapes: another batch, a wider layer;
5. nodes that everything below them makes unique, and their neighbours: programs without modules;
6. equal nodes in the order in which they are in the graph, the first with the first; then nodes
   of a module or parameter that are equal but for shapes;
7. neighbours with the same name.

What is left is in one of the graphs only. Each step takes time in proportion to the graph.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from agviz.traces.rows import EdgeRow, NodeRow

NOWHERE: Final = -1
"""Instead of a partner's index."""


@dataclass(frozen=True)
class Alignment:
    """Partners by index, or :data:`NOWHERE`."""

    a_to_b: list[int]
    b_to_a: list[int]


_Label: TypeAlias = "Callable[[Adjacency, NodeRow], Hashable]"


class Adjacency:
    """Nodes and edges of one graph task, both ways."""

    def __init__(self, nodes: Sequence[NodeRow], edges: Iterable[EdgeRow]) -> None:
        self.nodes = nodes
        self.outgoing: list[dict[int, tuple[int, int]]] = [{} for _ in nodes]
        """By node and output: consumer and slot."""
        self.incoming: list[list[tuple[int, int, int]]] = [[] for _ in nodes]
        """By node: slot, producer and its output."""
        for producer, output, consumer, slot in edges:
            self.outgoing[producer][output] = consumer, slot
            self.incoming[consumer].append((slot, producer, output))


def align(a: Adjacency, b: Adjacency) -> Alignment:
    """Find partners: Note [Node key]."""
    aligner = _Aligner(a, b)
    aligner.align()
    return Alignment(*aligner.partners)


def _exact(graph: Adjacency, node: NodeRow) -> Hashable:
    return *_named(graph, node), node.input_shapes


def _named(graph: Adjacency, node: NodeRow) -> tuple[Hashable, ...]:
    """A parameter's name is worth no more than what uses it.

    ``2.bias`` may be that of a Linear, or of a normalisation that came in between.
    """
    used_by = frozenset(
        graph.nodes[producer].name
        for _, producer, _ in (graph.incoming[node.index] if node.is_leaf else ())
    )
    return node.name, node.module, node.parameter, used_by


def _shaped(_graph: Adjacency, node: NodeRow) -> Hashable:
    return node.name, node.input_shapes


def _name(_graph: Adjacency, node: NodeRow) -> Hashable:
    return node.name


class _Aligner:
    def __init__(self, a: Adjacency, b: Adjacency) -> None:
        self._graphs = a, b
        self.partners = [NOWHERE] * len(a.nodes), [NOWHERE] * len(b.nodes)
        self._numbers: dict[Hashable, int] = {}
        """Every label that was met, as a small number; equal ones have the same in both graphs."""
        self._labels: dict[_Label, tuple[list[int], list[int]]] = {}

    def align(self) -> None:
        a, b = self._graphs
        if a.nodes and b.nodes and a.nodes[0].name == b.nodes[0].name:
            self._pair(0, 0)
        belongs = tuple([_belongs(node) for node in graph.nodes] for graph in self._graphs)
        steps: list[Callable[[], None]] = [
            lambda: self._unique(self._by(_exact), belongs),
            lambda: self._spread(_exact),
            lambda: self._spread(_shaped),
            lambda: self._spread(_named),
            lambda: self._unique(self._below()),
            lambda: self._spread(_exact),
            lambda: self._spread(_shaped),
            lambda: self._in_turn(self._by(_exact)),
            lambda: self._in_turn(self._by(_named), belongs),
            lambda: self._spread(_shaped),
            lambda: self._spread(_name),
        ]
        for step in steps:
            if any(NOWHERE not in partners for partners in self.partners):
                return
            step()

    def _pair(self, in_a: int, in_b: int) -> None:
        self.partners[0][in_a] = in_b
        self.partners[1][in_b] = in_a

    def _by(self, label: _Label) -> tuple[list[int], list[int]]:
        """The labels of all nodes of both graphs, as numbers."""
        labels = self._labels.get(label)
        if labels is None:
            a, b = ([self._number((label, label(g, n))) for n in g.nodes] for g in self._graphs)
            labels = self._labels[label] = a, b
        return labels

    def _number(self, label: Hashable) -> int:
        return self._numbers.setdefault(label, len(self._numbers))

    def _groups(
        self, labels: tuple[list[int], list[int]], allowed: tuple[list[bool], ...] | None
    ) -> Iterable[tuple[list[int], list[int]]]:
        """Nodes without a partner that have the same label, by index, from both graphs."""
        groups: dict[int, tuple[list[int], list[int]]] = {}
        for side, partners in enumerate(self.partners):
            for node, partner in enumerate(partners):
                if partner == NOWHERE and (allowed is None or allowed[side][node]):
                    groups.setdefault(labels[side][node], ([], []))[side].append(node)
        return groups.values()

    def _unique(
        self, labels: tuple[list[int], list[int]], allowed: tuple[list[bool], ...] | None = None
    ) -> None:
        """Pair what is one of its kind in both graphs."""
        for in_a, in_b in self._groups(labels, allowed):
            if len(in_a) == len(in_b) == 1:
                self._pair(in_a[0], in_b[0])

    def _in_turn(
        self, labels: tuple[list[int], list[int]], allowed: tuple[list[bool], ...] | None = None
    ) -> None:
        for group in self._groups(labels, allowed):
            for in_a, in_b in zip(*group, strict=False):
                self._pair(in_a, in_b)

    def _spread(self, label: _Label) -> None:
        """Pair neighbours of pairs, and theirs, as far as labels are equal."""
        labels = self._by(label)
        waiting = deque(node for node, at in enumerate(self.partners[0]) if at != NOWHERE)
        while waiting:
            in_a = waiting.popleft()
            in_b = self.partners[0][in_a]
            for pair in (
                *self._consumers(in_a, in_b, labels),
                *self._producers(in_a, in_b, labels),
            ):
                if self.partners[0][pair[0]] == self.partners[1][pair[1]] == NOWHERE:
                    self._pair(*pair)
                    waiting.append(pair[0])

    def _consumers(
        self, in_a: int, in_b: int, labels: tuple[list[int], list[int]]
    ) -> list[tuple[int, int]]:
        a, b = self._graphs
        others = b.outgoing[in_b]
        return [
            (consumer, other)
            for output, (consumer, slot) in a.outgoing[in_a].items()
            for other, other_slot in (others.get(output, (NOWHERE, NOWHERE)),)
            if other_slot == slot and labels[0][consumer] == labels[1][other]
        ]

    def _producers(
        self, in_a: int, in_b: int, labels: tuple[list[int], list[int]]
    ) -> list[tuple[int, int]]:
        """Producers without a partner of which there is one of a kind on both sides."""
        found: dict[tuple[int, int, int], tuple[list[int], list[int]]] = {}
        for side, node in enumerate((in_a, in_b)):
            for slot, producer, output in self._graphs[side].incoming[node]:
                if self.partners[side][producer] == NOWHERE:
                    key = slot, output, labels[side][producer]
                    found.setdefault(key, ([], []))[side].append(producer)
        return [(of_a[0], of_b[0]) for of_a, of_b in found.values() if len(of_a) == len(of_b) == 1]

    def _below(self) -> tuple[list[int], list[int]]:
        """Labels that are equal where everything that a node leads to is."""
        shaped = self._by(_shaped)
        a, b = (
            self._labels_below(graph, labels)
            for graph, labels in zip(self._graphs, shaped, strict=True)
        )
        return a, b

    def _labels_below(self, graph: Adjacency, labels: list[int]) -> list[int]:
        found = [NOWHERE] * len(graph.nodes)
        missing = [len(outgoing) for outgoing in graph.outgoing]
        ready = [node for node, count in enumerate(missing) if not count]
        while ready:
            node = ready.pop()
            leads_to = [
                (output, found[consumer], slot)
                for output, (consumer, slot) in graph.outgoing[node].items()
            ]
            found[node] = self._number(("below", labels[node], *leads_to))
            for _, producer, _ in graph.incoming[node]:
                missing[producer] -= 1
                if not missing[producer]:
                    ready.append(producer)
        return found


def _belongs(node: NodeRow) -> bool:
    """Whether somebody gave it, or the module it is of, a name."""
    return node.module is not None or node.parameter is not None
