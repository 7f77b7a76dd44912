"""PassReading: what happened in the nodes of a pass, added up by line, by module or by whatever.

A pass of a million events takes a second or more: it is read piece by piece, and what is known by
then can be shown meanwhile.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from agviz.traces.outline import Piece
    from agviz.traces.reader import Trace

K = TypeVar("K", bound=Hashable)

_PIECE: Final = 400


class NodeFigures(NamedTuple):
    """What happened in a pass in some nodes."""

    nodes: tuple[int, ...]
    """In order of their executions; behind them those that have not run."""
    time_ns: int
    """From the start to the end of each, added up."""
    norm: float | None
    """The largest of what they put out, of gradients that are finite; None: not known."""
    order: int | None
    """Number of the first that ran, among all executions; None: none has."""
    first_bad: tuple[int, int] | None
    """``seq`` of the first finding of something that is not finite, and the node that put it out;
    None: there is none."""

    @property
    def is_bad(self) -> bool:
        """Whether one of them put out something that is not finite."""
        return self.first_bad is not None


KeyFinder: TypeAlias = Callable[["Trace", int, "Piece", Sequence[int]], Mapping[int, K]]
"""Says of a trace, a graph task, what was read on and new nodes in it by what each is added up; a
node that is left out counts nowhere."""


class _Sum:
    """Figures of some nodes, which grow."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.rest: dict[int, None] = {}
        self.time_ns = 0
        self.norm: float | None = None
        self.order: int | None = None
        self.first_bad: tuple[int, int] | None = None
        self._known: NodeFigures | None = None

    @property
    def figures(self) -> NodeFigures:
        """As they are now."""
        if self._known is None:
            nodes = (*self.started, *self.rest)
            self._known = NodeFigures(nodes, self.time_ns, self.norm, self.order, self.first_bad)
        return self._known

    def changed(self) -> None:
        """They are to be worked out anew."""
        self._known = None


class PassReading(Generic[K]):
    """Figures of one pass, as far as they were read.

    Args:
        trace: which holds it.
        graph_task: the pass.
        keys: by what nodes are added up.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """

    def __init__(self, trace: Trace, graph_task: int, keys: KeyFinder[K]) -> None:
        self._graph_task = graph_task
        self._keys = keys
        self._outline = trace.outline(graph_task)
        nodes = self._outline.nodes
        self._sums: list[_Sum] = []
        self._places: dict[K, int] = {}
        """Of the sums."""
        self._of = array("i", [-1]) * nodes
        """By node: the place of its sum; -1: none."""
        self._starts = array("q", bytes(8 * nodes))
        self._has_started = bytearray(nodes)
        self._executions = 0
        self.until = trace.graph_task(graph_task).begin_seq - 1
        """``seq`` of the last event of which norms were read."""

    def is_of(self, trace: Trace) -> bool:
        """Whether the pass has as many nodes now as when the reading began."""
        return trace.graph_task(self._graph_task).nodes == self._outline.nodes

    def read_on(self, trace: Trace, seconds: float) -> bool:
        """Read for about so long; return whether there is no more for now.

        Raises:
            agviz.errors.TraceError: the file is damaged.
        """
        until = time.perf_counter() + seconds
        while True:
            piece = self._outline.more(_PIECE)
            self._add(trace, piece)
            if piece.is_last or time.perf_counter() >= until:
                return piece.is_last
            time.sleep(0)  # so that a screen is painted meanwhile

    def figures(self) -> dict[K, NodeFigures]:
        """What is known by now."""
        return {key: self._sums[place].figures for key, place in self._places.items()}

    def _add(self, trace: Trace, piece: Piece) -> None:
        self._describe(trace, piece)
        for _, start_ns, _, node in piece.started:
            self._starts[node], self._has_started[node] = start_ns, 1
            self._executions += 1
            if (its := self._sum_of(node)) is not None:
                its.rest.pop(node, None)
                its.started.append(node)
                its.order = its.order or self._executions
        for _, node, end_ns, _ in piece.ended:
            if (its := self._sum_of(node)) is not None:
                its.time_ns += end_ns - self._starts[node]
        for seq, node in piece.nonfinite:
            if (its := self._sum_of(node)) is not None:
                its.first_bad = its.first_bad or (seq, node)
        norms = trace.output_norms(self._graph_task, self.until, piece.until)
        self.until = max(self.until, piece.until)
        for node, norm in norms:
            if (its := self._sum_of(node)) is not None:
                its.norm = norm if its.norm is None else max(its.norm, norm)

    def _describe(self, trace: Trace, piece: Piece) -> None:
        new = [each.node for each in piece.described if not self._has_started[each.node]]
        for node, key in self._keys(trace, self._graph_task, piece, new).items():
            place = self._places.setdefault(key, len(self._sums))
            if place == len(self._sums):
                self._sums.append(_Sum())
            self._of[node] = place
            self._sums[place].rest[node] = None
            self._sums[place].changed()

    def _sum_of(self, node: int) -> _Sum | None:
        """Where a node counts, which is about to change; None: nowhere."""
        place = self._of[node]
        if place < 0:
            return None
        self._sums[place].changed()
        return self._sums[place]


def by_line(
    trace: Trace, graph_task: int, _piece: Piece, nodes: Sequence[int]
) -> dict[int, tuple[str, int]]:
    """File and line of the user's code that made each node."""
    lines = trace.forward_lines(graph_task, nodes)
    return {node: (frame.file, frame.line) for node, frame in lines.items()}


class ByModule:
    """The path of the module that each node belongs to, of a leaf the one that has its parameter.

    Empty: outside of modules.
    """

    def __init__(self) -> None:
        self._texts = {0: ""}

    def __call__(
        self, _trace: Trace, _graph_task: int, piece: Piece, nodes: Sequence[int]
    ) -> dict[int, str]:
        """Of some nodes."""
        self._texts.update(piece.texts)
        wanted = set(nodes)
        return {
            each.node: self._texts[each.module] or self._texts[each.parameter].rpartition(".")[0]
            for each in piece.described
            if each.node in wanted
        }
