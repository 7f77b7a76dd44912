"""FlowSteps: the nodes on the way of a gradient, in columns. A way may have very many."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar, overload

from agviz.traces.doubles import Doubles
from agviz.words.labels import numbered

if TYPE_CHECKING:
    from agviz.traces.rows import Frame

T = TypeVar("T")


class FlowStep(NamedTuple):
    """A node on the way."""

    graph_task: int
    node: int
    name: str
    order: int | None
    module: str
    """Or the parameter."""
    frame: Frame | None
    """The line of the forward that made it."""
    came: float | None
    """Norm of what came in, all inputs together; NaN: not finite; None: not known."""
    norm: float | None
    """Of what it put out towards the next; of the last node, of what came in."""
    ways: int
    """How many gradients led into it."""
    chosen: int
    """Which of these the way comes along, by size, from 0."""

    @property
    def label(self) -> str:
        """``#12 AddmmBackward0``."""
        return numbered(self.order, self.name) if self.order else self.name

    @property
    def line(self) -> str:
        """``model.py:31``; empty: not known."""
        return line_of(self.frame)


def line_of(frame: Frame | None) -> str:
    """``model.py:31``; empty: not known."""
    return "" if frame is None else f"{frame.file}:{frame.line}"


class StepWidths(NamedTuple):
    """The longest texts of a way, in cells."""

    order: int
    name: int
    module: int
    line: int


class _Told(Generic[T]):
    """A column of what is mostly one of few; it holds their places."""

    def __init__(self) -> None:
        self.column = array("i")
        self.few: list[T] = []
        self._places: dict[T, int] = {}

    def append(self, thing: T) -> None:
        """Add one."""
        place = self._places.setdefault(thing, len(self.few))
        if place == len(self.few):
            self.few.append(thing)
        self.column.append(place)

    def __getitem__(self, place: int) -> T:
        return self.few[self.column[place]]


class FlowSteps(Sequence[FlowStep]):
    """The steps of a way. They are added from its end; :meth:`turn` has the loss come first."""

    def __init__(self) -> None:
        self._graph_tasks = array("q")
        self._nodes = array("q")
        self.names: _Told[str] = _Told()
        self._orders = array("q")
        """-1: not known."""
        self._modules: _Told[str] = _Told()
        self._frames: _Told[Frame | None] = _Told()
        self.came = Doubles(0)
        self.norms = Doubles(0)
        self.ways = array("i")
        self._chosen = array("i")

    def add(self, step: FlowStep) -> None:
        """Add the node before those that are known."""
        self._graph_tasks.append(step.graph_task)
        self._nodes.append(step.node)
        self.names.append(step.name)
        self._orders.append(-1 if step.order is None else step.order)
        self._modules.append(step.module)
        self._frames.append(step.frame)
        self.came.append(step.came)
        self.norms.append(step.norm)
        self.ways.append(step.ways)
        self._chosen.append(step.chosen)

    def turn(self) -> None:
        """All are known: have the loss come first."""
        for told in (self.names, self._modules, self._frames):
            told.column.reverse()
        for column in (self._graph_tasks, self._nodes, self._orders, self.ways, self._chosen):
            column.reverse()
        self.came.reverse()
        self.norms.reverse()

    def __len__(self) -> int:
        return len(self._nodes)

    @overload
    def __getitem__(self, place: int) -> FlowStep: ...
    @overload
    def __getitem__(self, place: slice) -> list[FlowStep]: ...
    def __getitem__(self, place: int | slice) -> FlowStep | list[FlowStep]:
        if isinstance(place, slice):
            return [self[each] for each in range(len(self))[place]]
        order = self._orders[place]
        return FlowStep(
            graph_task=self._graph_tasks[place],
            node=self._nodes[place],
            name=self.names[place],
            order=None if order < 0 else order,
            module=self._modules[place],
            frame=self._frames[place],
            came=self.came[place],
            norm=self.norms[place],
            ways=self.ways[place],
            chosen=self._chosen[place],
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"FlowSteps({list(self)})"

    @property
    def has_choice(self) -> bool:
        """Whether the way is somewhere along another gradient than the largest."""
        return any(self._chosen)

    @property
    def meetings(self) -> int:
        """Nodes into which several gradients led."""
        return len(self.ways) - self.ways.count(0) - self.ways.count(1)

    def kind(self, place: int) -> tuple[str, str]:
        """Name and line of a node."""
        return self.names[place], line_of(self._frames[place])

    @property
    def widths(self) -> StepWidths:
        """How much room they need."""
        return StepWidths(
            len(f"{max(self._orders, default=0):,}"),
            max(map(len, self.names.few), default=0),
            max(map(len, self._modules.few), default=0),
            max((len(line_of(frame)) for frame in self._frames.few), default=0),
        )

    @property
    def range(self) -> tuple[float, float]:
        """Powers of ten of the least and the largest norm that is finite and not zero."""
        amounts = [norm for norm in self.norms.finite(0, len(self)) if norm > 0]
        return math.log10(min(amounts, default=1.0)), math.log10(max(amounts, default=1.0))
