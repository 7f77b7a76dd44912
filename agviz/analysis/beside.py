"""Beside: two backward passes as one list, read and compared piece by piece.

It is what :func:`~agviz.analysis.diff.diff` says of two passes, for who shows all of their nodes:
the same alignment (Note [Node key]), the same comparison (:mod:`agviz.analysis.pairs`), the same
first divergence (Note [First divergence]), with numbers that may not differ at all.
"""

from __future__ import annotations

import heapq
import time
from array import array
from bisect import bisect_left
from enum import IntFlag
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.alignment import NOWHERE, Aligner
from agviz.analysis.comparing import Tolerance, compare_elements
from agviz.analysis.diff_rows import Divergence, DivergenceKind, Level
from agviz.analysis.first_divergence import Causes, role_turn
from agviz.analysis.pairs import MUST_BE_IN_BOTH, PairComparison

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.alignment import Alignment
    from agviz.analysis.pairs import Place
    from agviz.analysis.pass_columns import Gradient, PassColumns
    from agviz.traces.health import HealthRow
    from agviz.traces.reader import Trace
    from agviz.traces.rows import NodeRow

_PIECE: Final = 1_000
_MOST_SLOWER: Final = 100
_LEAST_SHARE: Final = 0.01
"""Of the time of all nodes: what a node took longer and less is not looked at."""


class RowMark(IntFlag):
    """What is to be said of a row."""

    VALUES = 1
    """Some gradient is not the same, or there is none on one side."""
    KIND = 2
    """A dtype, a layout or a shape is not."""
    ENDED = 4
    """It ran, or failed, on one side only."""
    ORDER = 8
    """It ran earlier or later among the others."""
    BAD_A = 16
    """A gradient of A is not finite."""
    BAD_B = 32
    FIRST = 64
    """All that it was given is the same."""
    UNKNOWN = 128
    """No gradient was measured on both sides."""


DIFFERS: Final = RowMark.VALUES | RowMark.KIND | RowMark.ENDED


class BesideRow(NamedTuple):
    """A node of A, its partner in B, or one that has none."""

    a: int
    """Index; :data:`~agviz.analysis.alignment.NOWHERE`: it is only in B."""
    b: int
    marks: RowMark

    @property
    def is_paired(self) -> bool:
        """Whether it is in both."""
        return NOWHERE not in {self.a, self.b}

    @property
    def differs(self) -> bool:
        """Whether something is not the same; another order is no difference."""
        return not self.is_paired or bool(self.marks & DIFFERS)


class RowDetails(NamedTuple):
    """What was recorded of a row's nodes."""

    nodes: tuple[NodeRow | None, NodeRow | None]
    health: tuple[dict[Place, HealthRow], dict[Place, HealthRow]]
    divergences: list[Divergence]


class _Differing(NamedTuple):
    role: str
    slot: int
    mark: RowMark


class Beside:
    """The rows, in the order in which A ran; those of B alone are where they would have run there.

    Args:
        a: one pass.
        b: the other one, perhaps of the same trace.
    """

    def __init__(self, a: PassColumns, b: PassColumns) -> None:
        self.a, self.b = a, b
        self._compared = PairComparison((a.trace, b.trace), (a.task, b.task), Tolerance())
        self._nodes = array("i"), array("i")
        self._marks = bytearray()
        self._places: tuple[array[int], array[int]] = (array("i"), array("i"))
        """The row of each node, by node of A and of B."""
        self.differing = array("i")
        """Rows in which something is not the same."""
        self.bad = array("i")
        """Rows with something that is not finite."""
        self.slower = array("i")
        """Rows whose node took longer in B, the most first; those that matter, at most 100."""
        self.took_ns = 0, 0
        """What the nodes of each took that ran in both."""
        self.moved = 0
        """Number of rows that ran in another order."""
        self.paired = 0
        self.doing = ""
        """What is under way; empty: everything is done."""
        self._steps = self._all_steps()
        self.is_read = False

    def __len__(self) -> int:
        return len(self._marks)

    def __getitem__(self, row: int) -> BesideRow:
        return BesideRow(self._nodes[0][row], self._nodes[1][row], RowMark(self._marks[row]))

    @property
    def level(self) -> Level:
        """By what gradients are compared."""
        return self._compared.level

    @property
    def failure(self) -> tuple[str, str] | None:
        """How each ended, where they did not end alike."""
        return self._compared.failure

    @property
    def same(self) -> bool:
        """Whether nothing differs; once everything was read."""
        return not self.differing and self.failure is None

    @property
    def first(self) -> int | None:
        """The first row that differs though all that it was given is the same; None: none does."""
        found = (row for row in self.differing if self._marks[row] & RowMark.FIRST)
        return next(found, self.differing[0] if self.differing else None)

    def is_near(self, row: int, tolerance: float) -> bool:
        """Whether a row differs in nothing but gradients, and these by little.

        Args:
            row: one of them.
            tolerance: how far norms may be apart, as a share of the larger one.
        """
        a, b, marks = self[row]
        if NOWHERE in {a, b} or marks & ~RowMark.FIRST & ~RowMark.ORDER != RowMark.VALUES:
            return False
        norms = self.a.norms[a], self.b.norms[b]
        return abs(norms[1] - norms[0]) <= tolerance * max(norms)

    def beyond(self, tolerance: float) -> array[int]:
        """The rows that differ by more than that."""
        return array("i", (row for row in self.differing if not self.is_near(row, tolerance)))

    @property
    def earliest(self) -> int | None:
        """The row that was made first in the forward of those put together differently.

        Nodes that ran last were made first. None: all are put together alike.
        """
        for row in reversed(self.differing):
            found = self[row]
            side, node = (self.b, found.b) if found.a == NOWHERE else (self.a, found.a)
            other = not found.is_paired or found.marks & RowMark.KIND
            if other and not side.graph[node].is_leaf:
                return row
        return None

    def row_of(self, node: int, *, of_b: bool = False) -> int:
        """Where a node of A, or of B, is."""
        return self._places[of_b][node]

    def read_on(self, seconds: float) -> bool:
        """Read and compare for about so long; return whether anything is left.

        Raises:
            agviz.errors.TraceError: a file is damaged.
        """
        until = time.perf_counter() + seconds
        while not self.is_read and time.perf_counter() < until:
            if next(self._steps, self) is self:
                self.is_read = True
        return not self.is_read

    def details(self, row: int) -> RowDetails:
        """What was recorded of a row's nodes.

        Raises:
            agviz.errors.TraceError: a file is damaged.
        """
        found = self[row]
        sides = (self.a, found.a), (self.b, found.b)
        a, b = (
            None if node == NOWHERE else side.trace.node(side.task.id, node) for side, node in sides
        )
        of_a, of_b = (_health(side, node) for side, node in sides)
        divergences: list[Divergence] = []
        if a is None or b is None:
            divergences.append(Divergence(DivergenceKind.ONLY, a, b))
        else:
            values = self.a.values.get(found.a, {}), self.b.values.get(found.b, {})
            divergences += self._compared.divergences((a, b), (of_a, of_b), values)
            divergences.sort(key=role_turn)
        is_first = bool(found.marks & RowMark.FIRST)
        divergences = [each._replace(is_first=is_first) for each in divergences]
        return RowDetails((a, b), (of_a, of_b), divergences)

    # Reading and comparing.

    def _all_steps(self) -> Iterator[None]:
        for name, side in (("A", self.a), ("B", self.b)):
            self.doing = f"reading {name}"
            yield from side.read()
        self.doing = "aligning nodes"
        aligner = Aligner(self.a.graph, self.b.graph)
        yield from aligner.steps()
        found = aligner.found
        del aligner
        causes = Causes(self.a.graph, self.b.graph, found.b_to_a, (self.a.orders, self.b.orders))
        yield
        self.doing = "comparing gradients"
        self._sort(found, causes)
        yield
        for row in self._pieces():
            self._compare(row, causes)
            if not row % _PIECE:
                yield
        yield from self._sum_up(causes)
        self._note_order()
        self.differing = array("i", (row for row in self._pieces() if self[row].differs))
        bad = RowMark.BAD_A | RowMark.BAD_B
        self.bad = array("i", (row for row in self._pieces() if self._marks[row] & bad))
        yield from self._note_times()
        self.doing = ""

    def _note_times(self) -> Iterator[None]:
        """Find which nodes took longer in B."""
        more: dict[int, int] = {}
        totals = [0, 0]
        for row, (a, b) in enumerate(zip(*self._nodes, strict=True)):
            if not row % _PIECE:
                yield
            if NOWHERE in {a, b} or self.a.times[a] < 0 or self.b.times[b] < 0:
                continue
            times = self.a.times[a], self.b.times[b]
            totals = [total + each for total, each in zip(totals, times, strict=True)]
            more[row] = times[1] - times[0]
        self.took_ns = totals[0], totals[1]
        least = max(1, _LEAST_SHARE * totals[1])
        rows = heapq.nlargest(_MOST_SLOWER, more, key=more.__getitem__)
        self.slower = array("i", (row for row in rows if more[row] >= least))

    def _pieces(self) -> range:
        return range(len(self._marks))

    def _sort(self, found: Alignment, causes: Causes) -> None:
        to_b, to_a = found.a_to_b, found.b_to_a
        rows = [(node, partner) for node, partner in enumerate(to_b)]
        rows += [(NOWHERE, node) for node, partner in enumerate(to_a) if partner == NOWHERE]
        rows.sort(key=lambda row: causes.turn(*row))
        self.paired = sum(NOWHERE not in {a, b} for a, b in rows)
        self._nodes = array("i", (a for a, _ in rows)), array("i", (b for _, b in rows))
        self._marks = bytearray(len(rows))
        self._places = (
            array("i", [NOWHERE]) * len(self.a),
            array("i", [NOWHERE]) * len(self.b),
        )
        for places, nodes in zip(self._places, self._nodes, strict=True):
            for row, node in enumerate(nodes):
                if node != NOWHERE:
                    places[node] = row

    def _compare(self, row: int, causes: Causes) -> None:
        a, b, marks = self[row]
        if a != NOWHERE and self.a.bad[a]:
            marks |= RowMark.BAD_A
        if b != NOWHERE and self.b.bad[b]:
            marks |= RowMark.BAD_B
        if NOWHERE in {a, b}:
            causes.add(a, b, "", 0)
        else:
            found, compared = self._differing(a, b)
            for each in found:
                marks |= each.mark
                causes.add(a, b, each.role, each.slot)
            shapes = self.a.graph[a].shapes, self.b.graph[b].shapes
            if None not in shapes and shapes[0] != shapes[1]:
                marks |= RowMark.KIND
            if not compared and not found and not self.a.graph[a].is_leaf:
                marks |= RowMark.UNKNOWN
        self._marks[row] = marks

    def _sum_up(self, causes: Causes) -> Iterator[None]:
        """Find what is no consequence of another row, and leaves that are given something else."""
        for row in self._pieces():
            a, b, marks = found = self[row]
            if found.is_paired and self.a.graph[a].is_leaf:
                if not marks & DIFFERS and causes.reaches_leaf(a):
                    marks |= RowMark.VALUES
                elif not marks & DIFFERS and self._is_unknown_leaf(a, b):
                    marks |= RowMark.UNKNOWN
            roles = [""]
            if found.is_paired:
                roles = [each.role for each in self._differing(a, b)[0]] if marks & DIFFERS else []
            if any(causes.is_first(a, b, role) for role in roles):
                marks |= RowMark.FIRST
            self._marks[row] = marks
            if not row % _PIECE:
                yield

    def _is_unknown_leaf(self, a: int, b: int) -> bool:
        norms = self.a.norms[a], self.b.norms[b]
        return self.level is Level.STRUCTURE or any(norm != norm for norm in norms)  # noqa: PLR0124

    def _differing(self, a: int, b: int) -> tuple[list[_Differing], int]:
        """What diverges at a pair, and how many gradients were compared."""
        compared, found, count = self._compared, [], 0
        statuses = self.a.status(a), self.b.status(b)
        if compared.whole(*statuses) is not None:
            found.append(_Differing("", 0, RowMark.ENDED))
        if not compared.compares_gradients(*statuses):
            return found, count
        of_a, of_b = self.a.gradients(a), self.b.gradients(b)
        for place in {**of_a, **of_b}:
            one, other = of_a.get(place), of_b.get(place)
            if one is None or other is None:
                if place[0] in MUST_BE_IN_BOTH:
                    found.append(_Differing(*place, RowMark.VALUES))
                continue
            count += bool(one.numbers and other.numbers)
            marks = self._marks_of(one, other, (a, b), place)
            if marks:
                found.append(_Differing(*place, marks))
        return found, count

    def _marks_of(self, a: Gradient, b: Gradient, nodes: tuple[int, int], place: Place) -> RowMark:
        marks = RowMark(0)
        if (a.kind, a.shape) != (b.kind, b.shape):
            marks |= RowMark.KIND
        if a.shape != b.shape:
            return marks
        held = [
            side.values.get(node, {}).get(place)
            for side, node in zip((self.a, self.b), nodes, strict=True)
        ]
        if held[0] is not None and held[1] is not None and held[0].layout == held[1].layout:
            traces = (self.a.trace, held[0]), (self.b.trace, held[1])
            elements = compare_elements(*traces, Tolerance())
            if elements is not None:
                return marks if elements.same else marks | RowMark.VALUES
        if a.numbers and b.numbers and a.numbers != b.numbers:
            marks |= RowMark.VALUES
        return marks

    def _note_order(self) -> None:
        """Mark the fewest that had to be moved for B to have run in the order of A."""
        rows = [
            (row, self.b.orders[b])
            for row, (a, b) in enumerate(zip(*self._nodes, strict=True))
            if NOWHERE not in {a, b} and self.a.orders[a] and self.b.orders[b]
        ]
        kept = _longest_rise([order for _, order in rows])
        for place, (row, _) in enumerate(rows):
            if place not in kept:
                self._marks[row] |= RowMark.ORDER
        self.moved = len(rows) - len(kept)


def _longest_rise(numbers: Sequence[int]) -> set[int]:
    """The places of a longest subsequence that rises."""
    ends: list[int] = []
    at = array("i")
    before = array("i")
    for place, number in enumerate(numbers):
        length = bisect_left(ends, number)
        if length == len(ends):
            ends.append(number)
            at.append(place)
        else:
            ends[length], at[length] = number, place
        before.append(at[length - 1] if length else -1)
    found = set()
    place = at[-1] if at else -1
    while place >= 0:
        found.add(place)
        place = before[place]
    return found


def _health(side: PassColumns, node: int) -> dict[Place, HealthRow]:
    if node == NOWHERE:
        return {}
    return {(row.role, row.slot): row for row in side.trace.health(side.task.id, node)}


def counterparts(a: Trace, b: Trace) -> list[tuple[int, int]]:
    """Passes of two traces by their order: outermost ones, each followed by those inside of it."""
    return [
        pair
        for families in zip(_families(a), _families(b), strict=False)
        for pair in zip(*families, strict=False)
    ]


def _families(trace: Trace) -> list[list[int]]:
    found: dict[int, list[int]] = {}
    for task in trace.graph_tasks:  # parents come before their children
        around = found.get(task.parent)
        if around is None:
            found[task.id] = [task.id]
        else:
            around.append(task.id)
            found[task.id] = around
    return [family for root, family in found.items() if family[0] == root]
