"""What a picture marks at nodes and edges beside what their rows say: health, hooks, paths."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agviz.analysis.measures import bad, magnitude
from agviz.analysis.origins import OriginKind, spread
from agviz.graph.critical import NO_PATH, CriticalPath

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agviz.analysis.origins import Origin
    from agviz.traces.health import HealthRow
    from agviz.traces.hook_calls import HookCalls
    from agviz.traces.reader import Trace
    from agviz.traces.rows import EdgeRow, SavedRow

_ALL = 2**31 - 1
EXPLODING = 1_000.0
"""Growth, in one node, of the largest element of a gradient that is worth a mark."""


@dataclass(frozen=True, slots=True)
class Marks:
    """By node index; an edge is known by its producer and output."""

    dtypes: Mapping[tuple[int, int], str] = field(default_factory=dict)
    """Of gradients, by edge."""
    received: Mapping[int, str] = field(default_factory=dict)
    """Dtype of what a node receives, in the lowest slot of which it is known."""
    zero: frozenset[int] = frozenset()
    """Nodes that put out nothing but zeros, though they were given something else."""
    zeros: frozenset[tuple[int, int]] = frozenset()
    """Edges along which nothing but zeros flowed."""
    got_zeros: frozenset[int] = frozenset()
    """Nodes of which the whole gradient was zero; of a leaf: what ``.grad`` became."""
    growth: Mapping[int, float] = field(default_factory=dict)
    """Nodes in which the largest element grew :data:`EXPLODING` times or more, and how much."""
    nonfinite: frozenset[tuple[int, int]] = frozenset()
    """Edges along which something non-finite flowed."""
    origins: Mapping[int, OriginKind] = field(default_factory=dict)
    """Nodes at which something became non-finite of what was finite, in the order in which that
    was seen."""
    hooks: Mapping[int, Sequence[HookCalls]] = field(default_factory=dict)
    saved: Mapping[int, Sequence[SavedRow]] = field(default_factory=dict)
    """Only where it was asked for."""
    attributes: Mapping[int, Sequence[str]] = field(default_factory=dict)
    """What else nodes had saved, as ``dim: 1``; only of a loss, where it was asked for."""
    critical: CriticalPath = NO_PATH

    @property
    def dtype(self) -> str:
        """The dtype of most gradients; empty where none is known."""
        counted = Counter(self.dtypes.values())
        return min(counted, key=lambda name: (-counted[name], name), default="")


def read_marks(
    trace: Trace, graph_task: int, edges: Sequence[EdgeRow], *, saved: bool = False
) -> Marks:
    """Everything but the critical path.

    Args:
        trace: where the graph task is recorded.
        graph_task: its id.
        edges: all of them.
        saved: read which tensors nodes had saved.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    spreading = spread(trace, graph_task)
    found = _Health(trace.health(graph_task, limit=_ALL), edges)
    nonfinite = found.nonfinite
    if trace.meta.values == "none":
        rows = trace.nonfinite(graph_task, limit=_ALL)
        nonfinite = frozenset((row.node, row.output) for row in rows)
    return Marks(
        dtypes=found.dtypes,
        received=found.received,
        zero=found.zero(),
        zeros=found.zeros,
        got_zeros=found.got_zeros,
        growth=found.growth(),
        nonfinite=nonfinite,
        origins={}
        if spreading is None
        else _by_origin(each for each in spreading.origins if each.graph_task == graph_task),
        hooks=_by_node(trace.hook_calls(graph_task)),
        saved=_by_node(trace.all_saved(graph_task)) if saved else {},
    )


def _by_origin(origins: Iterable[Origin]) -> dict[int, OriginKind]:
    kinds: dict[int, OriginKind] = {}
    for origin in origins:
        kinds.setdefault(origin.node, origin.kind)
    return kinds


def _by_node(rows: Iterable[HookCalls] | Iterable[SavedRow]) -> dict[int, list]:  # type: ignore[type-arg]
    found: defaultdict[int, list[HookCalls | SavedRow]] = defaultdict(list)
    for row in rows:
        found[row.node].append(row)
    return dict(found)


class _Health:
    """What was measured of the gradients of one graph task."""

    def __init__(self, rows: Iterable[HealthRow], edges: Sequence[EdgeRow]) -> None:
        put_out: defaultdict[int, list[HealthRow]] = defaultdict(list)
        became: dict[int, HealthRow] = {}
        received: dict[tuple[int, int], HealthRow] = {}
        by_output: dict[tuple[int, int], HealthRow] = {}
        for row in rows:
            if row.role == "output":
                put_out[row.node].append(row)
                by_output[row.node, row.slot] = row
            elif row.role in {"root", "sum"}:
                received[row.node, row.slot] = row
            elif row.role == "accumulated":
                became[row.node] = row
        self.got_zeros = _got_zeros(became, received, by_output, edges)
        for edge in edges:
            produced = by_output.get((edge.producer, edge.output))
            if produced is not None:
                received.setdefault((edge.consumer, edge.slot), produced)
        self.dtypes = {place: row.dtype for place, row in by_output.items() if row.dtype}
        self.received = {
            node: row.dtype for (node, _), row in sorted(received.items(), key=_place, reverse=True)
        }
        self.nonfinite = frozenset(place for place, row in by_output.items() if bad(row))
        self.zeros = frozenset(place for place, row in by_output.items() if _is_zero(row))
        self._put_out = put_out
        self._largest: dict[int, float] = {}
        """By node: the largest element of what it was given, where all of it is known."""
        unknown = set()
        for (node, _), row in received.items():
            largest = _largest(row)
            if largest is None:
                unknown.add(node)
            else:
                self._largest[node] = max(largest, self._largest.get(node, 0.0))
        for node in unknown:
            self._largest.pop(node, None)

    def zero(self) -> frozenset[int]:
        return frozenset(
            node
            for node, rows in self._put_out.items()
            if self._largest.get(node, 0.0) > 0 and all(map(_is_zero, rows))
        )

    def growth(self) -> dict[int, float]:
        grown = {}
        for node, rows in self._put_out.items():
            given = self._largest.get(node, 0.0)
            largest = max((_largest(row) or 0.0 for row in rows), default=0.0)
            if given > 0 and largest >= EXPLODING * given:
                grown[node] = largest / given
        return grown


def _got_zeros(
    became: Mapping[int, HealthRow],
    received: Mapping[tuple[int, int], HealthRow],
    by_output: Mapping[tuple[int, int], HealthRow],
    edges: Sequence[EdgeRow],
) -> frozenset[int]:
    """Nodes of which all that they got is zero: by one edge, as a sum, or what ``.grad`` became."""
    meeting = Counter((edge.consumer, edge.slot) for edge in edges)
    whole = {
        edge.consumer: by_output[edge.producer, edge.output]
        for edge in edges
        if meeting[edge.consumer, edge.slot] == 1 and (edge.producer, edge.output) in by_output
    }
    whole |= {node: row for (node, _), row in received.items()}
    return frozenset(node for node, row in {**whole, **became}.items() if _is_zero(row))


def _is_zero(row: HealthRow) -> bool:
    return 0 < row.numbers == row.zero


def _largest(row: HealthRow) -> float | None:
    """The largest finite magnitude; None where that is not known, or something is not finite."""
    return None if bad(row) or row.min is None else magnitude(row)


def _place(entry: tuple[tuple[int, int], HealthRow]) -> tuple[int, int]:
    return entry[0]
