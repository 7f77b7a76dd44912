"""What a comparison of two traces shows: plain immutable rows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from agviz.analysis.alignment import NOWHERE

if TYPE_CHECKING:
    from agviz.traces.health import HealthRow
    from agviz.traces.rows import GraphTaskRow, NodeRow


class Level(StrEnum):
    """By what gradients were compared."""

    STRUCTURE = "structure"
    """Not at all: one of the recordings, or both, were made with ``--values none``."""
    HEALTH = "health"
    """By what was measured of them."""
    ELEMENTS = "elements"
    """By their elements, as far as both recordings hold them; else by what was measured."""


class DivergenceKind(StrEnum):
    """What diverges."""

    ONLY = "only"
    """The node is in one graph only."""
    RAN = "ran"
    """The node is in both graphs, but it ran, or its function was called, in one recording only."""
    FAILED = "failed"
    """The node failed in one recording only, or with another error."""
    GRADIENT = "gradient"
    """A gradient is not the same."""
    ABSENT = "absent"
    """A gradient is undefined in one recording only."""


class Divergence(NamedTuple):
    """One thing that is not the same."""

    kind: DivergenceKind
    a: NodeRow | None
    """The node in A; None where it is in B only."""
    b: NodeRow | None
    role: str = ""
    """Of a gradient, as in HealthRow: ``output``, ``sum``, …; else empty."""
    slot: int = 0
    facts: tuple[str, ...] = ()
    """Of a gradient: the fields of HealthRow that differ, ``elements`` where only those do."""
    health_a: HealthRow | None = None
    health_b: HealthRow | None = None
    largest: float | None = None
    """Largest difference of two elements; None where they were not compared."""
    is_first: bool = False
    """Whether nothing diverges in what the node was given (Note [First divergence])."""

    @property
    def node(self) -> NodeRow:
        """The node, as it is in A if it is there."""
        found = self.b if self.a is None else self.a
        if found is None:
            raise ValueError("it is at no node")
        return found

    @property
    def place(self) -> tuple[int | None, int | None]:
        """The node's index in A and in B."""
        return None if self.a is None else self.a.index, None if self.b is None else self.b.index

    @property
    def indexes(self) -> tuple[int, int]:
        """The same, :data:`NOWHERE` for None."""
        a, b = (NOWHERE if index is None else index for index in self.place)
        return a, b


class Change(NamedTuple):
    """A node that both graphs have is put together differently."""

    a: NodeRow
    b: NodeRow
    what: str
    """``output 1 leads to``, ``number of inputs``, ``shapes of inputs``."""
    of_a: str
    of_b: str


@dataclass(frozen=True, kw_only=True)
class PassDiff:
    """Two graph tasks beside each other. Lists are in the order in which A, or else B, ran."""

    a: GraphTaskRow
    b: GraphTaskRow
    within: NodeRow | None
    """The node of A that made this pass; None: the program did."""
    level: Level
    aligned: int
    """Number of nodes that are in both."""
    gradients: int
    """Number of gradients that were compared."""
    elements: int
    """Number of those that were compared by their elements."""
    unknown: int
    """Number of those of which too little is known to say that they are the same."""
    only_in_a: list[NodeRow]
    only_in_b: list[NodeRow]
    changes: list[Change]
    divergences: list[Divergence]
    """All of them, consequences included."""
    diverged: int
    """Number of nodes at which something diverges."""
    reached: list[NodeRow]
    """The AccumulateGrad nodes that get a gradient that is not the same, or are in one graph
    only."""
    leaves: int
    """Number of AccumulateGrad nodes, those that are in one graph only included."""
    nonfinite: tuple[NodeRow | None, NodeRow | None]
    """The first node of A that put out NaN or infinities and whose partner, if it has one, did not;
    and the same of B."""
    failure: tuple[str, str] | None
    """How each ended, where they did not end alike."""
    other_order: tuple[NodeRow, NodeRow] | None
    """The first nodes that ran in another order than their partners, in A and in B; no
    difference."""

    @property
    def first(self) -> list[Divergence]:
        """The divergences that are no consequence of another one (Note [First divergence])."""
        return [each for each in self.divergences if each.is_first]

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not (self.divergences or self.changes or self.failure or self.only_in_a) and not (
            self.only_in_b
        )
