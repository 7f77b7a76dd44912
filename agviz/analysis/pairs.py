"""What diverges at a node that two graph tasks share, by what was recorded of it on both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from agviz.analysis.comparing import Elements, Tolerance, compare_elements, differing
from agviz.analysis.diff_rows import Divergence, DivergenceKind, Level
from agviz.analysis.first_divergence import INPUT_ROLES
from agviz.traces.rows import GraphTaskStatus, NodeStatus

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agviz.traces.health import HealthRow
    from agviz.traces.reader import Trace
    from agviz.traces.rows import GraphTaskRow, NodeRow
    from agviz.traces.values import ValueRow

Place: TypeAlias = tuple[str, int]
"""Role and slot of a gradient, as in HealthRow."""
MUST_BE_IN_BOTH = ("output", "root")
"""Roles of gradients that are always measured where they are defined."""


class PairComparison:
    """Compares nodes that are partners, and counts what was compared.

    Args:
        traces: A and B.
        tasks: the graph task of each.
        tolerance: how far numbers may be apart.
    """

    def __init__(
        self,
        traces: tuple[Trace, Trace],
        tasks: tuple[GraphTaskRow, GraphTaskRow],
        tolerance: Tolerance,
    ) -> None:
        self._traces = traces
        self._tolerance = tolerance
        self.gradients = self.by_elements = self.unknown = 0
        """As in PassDiff."""
        levels = {trace.meta.values for trace in traces}
        self.level = Level.STRUCTURE if "none" in levels else Level.HEALTH
        if levels == {"full"}:
            self.level = Level.ELEMENTS
        self.have_ended = all(task.status is GraphTaskStatus.FINISHED for task in tasks)
        ended = _ended(tasks[0]), _ended(tasks[1])
        self.failure = None if ended[0] == ended[1] else ended
        """How each ended, where they did not end alike."""

    def whole(self, a: NodeStatus, b: NodeStatus) -> DivergenceKind | None:
        """How nodes diverge as such, by how they ended."""
        if NodeStatus.UNKNOWN in {a, b}:
            return None
        failed = [status is NodeStatus.FAILED for status in (a, b)]
        if any(failed):
            return DivergenceKind.FAILED if not all(failed) or self.failure else None
        return DivergenceKind.RAN if a is not b and self.have_ended else None

    def compares_gradients(self, a: NodeStatus, b: NodeStatus) -> bool:
        """Whether gradients of nodes that ended so are compared."""
        ends = {NodeStatus.UNKNOWN, NodeStatus.FAILED}
        return a is b and a not in ends and self.level is not Level.STRUCTURE

    def divergences(
        self,
        nodes: tuple[NodeRow, NodeRow],
        health: tuple[Mapping[Place, HealthRow], Mapping[Place, HealthRow]],
        values: tuple[Mapping[Place, ValueRow], Mapping[Place, ValueRow]],
    ) -> Iterator[Divergence]:
        """What diverges at a node that is in both graphs."""
        a, b = nodes
        kind = self.whole(a.status, b.status)
        if kind is not None:
            yield Divergence(kind, a, b)
        if not self.compares_gradients(a.status, b.status):
            return
        of_a, of_b = health
        for place in sorted({*of_a, *of_b}, key=lambda at: (at[0] not in INPUT_ROLES, at)):
            held = values[0].get(place), values[1].get(place)
            divergence = self._gradient(nodes, place, (of_a.get(place), of_b.get(place)), held)
            if divergence is not None:
                yield divergence

    def _gradient(
        self,
        nodes: tuple[NodeRow, NodeRow],
        place: Place,
        health: tuple[HealthRow | None, HealthRow | None],
        values: tuple[ValueRow | None, ValueRow | None],
    ) -> Divergence | None:
        of_a, of_b = health
        if of_a is None or of_b is None:
            if place[0] in MUST_BE_IN_BOTH:
                return Divergence(DivergenceKind.ABSENT, *nodes, *place, (), of_a, of_b)
            return None  # whether these are measured depends on what else there is
        self.gradients += 1
        facts = differing(of_a, of_b, self._tolerance)
        elements = self._elements(*values, facts)
        largest = None
        if elements is not None:
            self.by_elements += 1
            largest = elements.largest
            kinds = [fact for fact in facts if fact in {"dtype", "layout"}]
            if elements.same:
                facts = kinds
            elif facts == kinds:
                facts.append("elements")
        elif (of_a.unknown or of_b.unknown) and not facts:
            self.unknown += 1
        if not facts:
            return None
        kind = DivergenceKind.GRADIENT
        return Divergence(kind, *nodes, *place, tuple(facts), of_a, of_b, largest)

    def _elements(
        self, a: ValueRow | None, b: ValueRow | None, facts: Sequence[str]
    ) -> Elements | None:
        if a is None or b is None or "shape" in facts or a.layout != b.layout:
            return None
        return compare_elements((self._traces[0], a), (self._traces[1], b), self._tolerance)


def _ended(task: GraphTaskRow) -> str:
    """How a graph task ended, in words."""
    if task.status is not GraphTaskStatus.FAILED:
        return str(task.status)
    first_line, _, _ = task.message.partition("\n")
    return f"failed with {task.error}: {first_line}"
