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

from array import array
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from agviz.traces.nodes import PlacedNode
from agviz.traces.rows import NodeStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

    from agviz.traces.rows import EdgeRow, NodeRow

NOWHERE: Final = -1
"""Instead of a partner's index."""


@dataclass(frozen=True)
class Alignment:
    """Partners by index, or :data:`NOWHERE`."""

    a_to_b: Sequence[int]
    b_to_a: Sequence[int]


class Adjacency:
    """Nodes and edges of one graph task, both ways, in columns of integers.

    Args:
        nodes: by index; more of them come by :meth:`add_node`.
        edges: more of them come by :meth:`add_edge`.
        count: number of nodes there will be; at least as many as ``nodes``.
    """

    def __init__(
        self, nodes: Sequence[NodeRow] = (), edges: Iterable[EdgeRow] = (), count: int = 0
    ) -> None:
        count = max(count, len(nodes))
        self.facts: list[PlacedNode] = []
        """Every one there is."""
        self.of = array("i")
        """Place in :attr:`facts`, by node."""
        self._numbers: dict[PlacedNode, int] = {}
        self._ends = tuple(array("q") for _ in range(4))
        """Of each edge: producer, output, consumer, slot, of which a file may say anything."""
        self._last = tuple(array("i", [NOWHERE]) * count for _ in range(2))
        """By node: the last edge out of it, and into it."""
        self._before = array("i"), array("i")
        """By edge: the one before that leaves the same node, and that enters the same one."""
        for row in nodes:
            self.add_node(
                PlacedNode(
                    row.name,
                    row.module,
                    row.parameter,
                    row.input_shapes,
                    row.is_leaf,
                    row.status is not NodeStatus.UNKNOWN,
                )
            )
        for edge in edges:
            self.add_edge(edge)

    def __len__(self) -> int:
        return len(self.of)

    def __getitem__(self, node: int) -> PlacedNode:
        return self.facts[self.of[node]]

    def add_node(self, facts: PlacedNode) -> None:
        """Add the next one."""
        number = self._numbers.setdefault(facts, len(self.facts))
        if number == len(self.facts):
            self.facts.append(facts)
        self.of.append(number)

    def add_edge(self, edge: EdgeRow) -> None:
        """Add one."""
        number = len(self._ends[0])
        for column, end in zip(self._ends, edge, strict=True):
            column.append(end)
        for side, node in enumerate((edge.producer, edge.consumer)):
            self._before[side].append(self._last[side][node])
            self._last[side][node] = number

    def outgoing(self, node: int) -> list[tuple[int, int, int]]:
        """Output, consumer and slot of each edge that leaves a node."""
        _, outputs, consumers, slots = self._ends
        return [(outputs[at], consumers[at], slots[at]) for at in self._edges(0, node)]

    def incoming(self, node: int) -> list[tuple[int, int, int]]:
        """Slot, producer and its output of each edge that enters a node."""
        producers, outputs, _, slots = self._ends
        return [(slots[at], producers[at], outputs[at]) for at in self._edges(1, node)]

    def _edges(self, side: int, node: int) -> list[int]:
        before, found = self._before[side], []
        at = self._last[side][node]
        while at >= 0:
            found.append(at)
            at = before[at]
        found.reverse()
        return found


_Label: TypeAlias = "Callable[[Adjacency, int], Hashable]"
_Labels: TypeAlias = "tuple[Sequence[int], Sequence[int]]"


def align(a: Adjacency, b: Adjacency) -> Alignment:
    """Find partners: Note [Node key]."""
    aligner = Aligner(a, b)
    for _ in aligner.steps():
        pass
    return aligner.found


def _exact(graph: Adjacency, node: int) -> Hashable:
    return *_named(graph, node), graph[node].shapes


def _named(graph: Adjacency, node: int) -> tuple[Hashable, ...]:
    """A parameter's name is worth no more than what uses it.

    ``2.bias`` may be that of a Linear, or of a normalisation that came in between.
    """
    facts = graph[node]
    used_by = frozenset(
        graph[producer].name for _, producer, _ in (graph.incoming(node) if facts.is_leaf else ())
    )
    return facts.name, facts.module, facts.parameter, used_by


def _shaped(graph: Adjacency, node: int) -> Hashable:
    facts = graph[node]
    return facts.name, facts.shapes


def _name(graph: Adjacency, node: int) -> Hashable:
    return graph[node].name


class Aligner:
    """Pairs the nodes of two graphs, step by step.

    Args:
        a: one graph.
        b: the other one.
    """

    def __init__(self, a: Adjacency, b: Adjacency) -> None:
        self._graphs = a, b
        self._partners = tuple(array("i", [NOWHERE]) * len(graph) for graph in self._graphs)
        self._numbers: dict[Hashable, int] = {}
        """Every label that was met, as a small number; equal ones have the same in both graphs."""
        self._labels: dict[_Label, _Labels] = {}

    @property
    def found(self) -> Alignment:
        """The partners, as far as the steps have gone."""
        return Alignment(*self._partners)

    def steps(self) -> Iterator[None]:
        """Find partners: a step at each turn."""
        a, b = self._graphs
        if len(a) and len(b) and a[0].name == b[0].name:
            self._pair(0, 0)
        belongs = tuple([_belongs(graph[node]) for node in range(len(graph))] for graph in (a, b))
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
            if any(NOWHERE not in partners for partners in self._partners):
                return
            step()
            yield

    def _pair(self, in_a: int, in_b: int) -> None:
        self._partners[0][in_a] = in_b
        self._partners[1][in_b] = in_a

    def _by(self, label: _Label) -> _Labels:
        """The labels of all nodes of both graphs, as numbers."""
        labels = self._labels.get(label)
        if labels is None:
            a, b = (self._numbered(label, graph) for graph in self._graphs)
            labels = self._labels[label] = a, b
        return labels

    def _numbered(self, label: _Label, graph: Adjacency) -> Sequence[int]:
        number = self._numbers
        return array(
            "q",
            (
                number.setdefault((label, label(graph, node)), len(number))
                for node in range(len(graph))
            ),
        )

    def _groups(
        self, labels: _Labels, allowed: tuple[list[bool], ...] | None
    ) -> Iterable[tuple[list[int], list[int]]]:
        """Nodes without a partner that have the same label, by index, from both graphs."""
        groups: dict[int, tuple[list[int], list[int]]] = {}
        for side, partners in enumerate(self._partners):
            for node, partner in enumerate(partners):
                if partner == NOWHERE and (allowed is None or allowed[side][node]):
                    groups.setdefault(labels[side][node], ([], []))[side].append(node)
        return groups.values()

    def _unique(self, labels: _Labels, allowed: tuple[list[bool], ...] | None = None) -> None:
        """Pair what is one of its kind in both graphs."""
        for in_a, in_b in self._groups(labels, allowed):
            if len(in_a) == len(in_b) == 1:
                self._pair(in_a[0], in_b[0])

    def _in_turn(self, labels: _Labels, allowed: tuple[list[bool], ...] | None = None) -> None:
        for group in self._groups(labels, allowed):
            for in_a, in_b in zip(*group, strict=False):
                self._pair(in_a, in_b)

    def _spread(self, label: _Label) -> None:
        """Pair neighbours of pairs, and theirs, as far as labels are equal."""
        labels = self._by(label)
        waiting = deque(node for node, at in enumerate(self._partners[0]) if at != NOWHERE)
        while waiting:
            in_a = waiting.popleft()
            in_b = self._partners[0][in_a]
            for pair in (
                *self._consumers(in_a, in_b, labels),
                *self._producers(in_a, in_b, labels),
            ):
                if self._partners[0][pair[0]] == self._partners[1][pair[1]] == NOWHERE:
                    self._pair(*pair)
                    waiting.append(pair[0])

    def _consumers(self, in_a: int, in_b: int, labels: _Labels) -> list[tuple[int, int]]:
        a, b = self._graphs
        others = {output: end for output, *end in b.outgoing(in_b)}
        return [
            (consumer, other)
            for output, consumer, slot in a.outgoing(in_a)
            for other, other_slot in (others.get(output, (NOWHERE, NOWHERE)),)
            if other_slot == slot and labels[0][consumer] == labels[1][other]
        ]

    def _producers(self, in_a: int, in_b: int, labels: _Labels) -> list[tuple[int, int]]:
        """Producers without a partner of which there is one of a kind on both sides."""
        found: dict[tuple[int, int, int], tuple[list[int], list[int]]] = {}
        for side, node in enumerate((in_a, in_b)):
            for slot, producer, output in self._graphs[side].incoming(node):
                if self._partners[side][producer] == NOWHERE:
                    key = slot, output, labels[side][producer]
                    found.setdefault(key, ([], []))[side].append(producer)
        return [(of_a[0], of_b[0]) for of_a, of_b in found.values() if len(of_a) == len(of_b) == 1]

    def _below(self) -> _Labels:
        """Labels that are equal where everything that a node leads to is."""
        shaped = self._by(_shaped)
        a, b = map(_labels_below, self._graphs, shaped)
        return a, b


def _labels_below(graph: Adjacency, labels: Sequence[int]) -> Sequence[int]:
    """Hashes of 64 bits: there are as many as nodes, and texts of them would need much room."""
    found = array("q", [0]) * len(graph)
    missing = array("i", (len(graph.outgoing(node)) for node in range(len(graph))))
    ready = [node for node, count in enumerate(missing) if not count]
    while ready:
        node = ready.pop()
        leads_to = [
            (output, found[consumer], slot) for output, consumer, slot in graph.outgoing(node)
        ]
        found[node] = hash((labels[node], *leads_to))
        for _, producer, _ in graph.incoming(node):
            missing[producer] -= 1
            if not missing[producer]:
                ready.append(producer)
    return found


def _belongs(facts: PlacedNode) -> bool:
    """Whether somebody gave it, or the module it is of, a name."""
    return facts.module is not None or facts.parameter is not None
