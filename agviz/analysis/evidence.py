"""What a trace knows about the place where a gradient became non-finite: what rules judge by."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.blame import arguments
from agviz.analysis.measures import bad, magnitude
from agviz.analysis.origins import OriginKind
from agviz.analysis.program_writes import nonfinite_write
from agviz.analysis.ways import Ways
from agviz.measure.values import Health
from agviz.traces.rows import NodeStatus
from agviz_engine import events

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from agviz.analysis.blame import Argument, Blame
    from agviz.analysis.origins import Origin
    from agviz.traces.health import HealthRow
    from agviz.traces.reader import Trace
    from agviz.traces.rows import EdgeRow, ForwardOpRow, SavedHealthRow

_MOST_STEPS: Final = 12
_MOST_ON_PATH: Final = 1_000
_MOST_NEAR: Final = 6
"""Edges."""
_MOST_NODES_NEAR: Final = 64
_RESHAPING: Final = {
    "AsStrided", "Clone", "Contiguous", "Expand", "Permute", "Reshape", "ReshapeAlias", "Squeeze",
    "T", "Transpose", "Unflatten", "UnsafeView", "Unsqueeze", "View", "ToCopy", "Alias",
}  # fmt: skip
"""What neither adds nor takes away numbers but for copies of them."""
_CHOOSING: Final = frozenset({"Where", "MaskedFill"})
"""What puts something else in the place of what is not finite."""
SQUARE: Final = "MulBackward0 of itself"
"""Stands for the node of ``x * x``."""


class Received(NamedTuple):
    """A gradient that a node was given."""

    slot: int
    producers: tuple[str, ...]
    """Names of the nodes it came from; empty where it came from the caller."""
    health: Health | None
    """Before hooks; None: not measured."""


class Hook(NamedTuple):
    """A hook that replaced a gradient on its way into the node, or out of it."""

    kind: str
    """As in ``HookCalled``."""
    name: str
    gave: Health | None
    """What it gave instead; None: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One place in a backward pass, and what was measured around it."""

    kind: OriginKind
    node: str
    """Name of the node as torch has it, e.g. ``SqrtBackward0``."""
    received: tuple[Received, ...] = ()
    outputs: Mapping[int, Health] = field(default_factory=dict)
    """What the node put out, by output."""
    wrong: Health | None = None
    """The gradient that was non-finite first; one of the outputs where the node made it."""
    saved: Mapping[str, SavedHealthRow] = field(default_factory=dict)
    """What the node had saved, by torch's name."""
    consumers: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Names of what an output goes to, and of what lies behind that, without reshaping nodes."""
    near: frozenset[str] = frozenset()
    """Names of the nodes a few edges towards the leaves."""
    zeroed_by: str = ""
    """Name of the nearest node before this one that made numbers of the gradient zero; or empty."""
    is_weight: bool = False
    """Whether that multiplies by what a gradient leads to as well: a factor, and no mask."""
    scale: float | None = None
    """What the gradient of the loss itself is, where that is not 1: a loss scale."""
    norms: tuple[tuple[str, float], ...] = ()
    """Names and norms of what was put out on the way from a root to the node; empty where nobody
    asked (:func:`with_norms`)."""
    is_partial: bool = False
    """Whether the events of a node were left out of the recording (``nodes=``) that this one was
    given a gradient by."""
    hooks: tuple[Hook, ...] = ()
    had_grad: bool | None = None
    """Of an AccumulateGrad: whether its variable had a ``.grad`` before; None: not known."""
    was_bad_before: bool = True
    """Of an AccumulateGrad: whether gradients of an earlier pass were non-finite."""
    written: ForwardOpRow | None = None
    """Of an AccumulateGrad: the function by which the program wrote something non-finite, of the
    shape of its gradient, since the pass before; None: none was recorded."""
    arguments: tuple[Argument, ...] = ()
    """The tensors that the function of the forward was given that made the node; empty where it was
    not recorded."""
    result: Health | None = None
    """What that function gave; None where it was not recorded."""
    blame: Blame | None = None
    """Which function of the forward gave something non-finite first; None where none is known."""
    is_blamed: bool = False
    """Whether that is the function that made the node."""

    @property
    def function(self) -> str:
        """Name of the node without ``Backward0``."""
        return base_name(self.node)


def base_name(name: str) -> str:
    """``Sqrt`` for ``SqrtBackward0``."""
    return re.sub(r"Backward\d*$", "", name)


def gather(trace: Trace, origin: Origin, blame: Blame | None) -> Evidence:
    """Everything that is known about the place where ``origin`` is.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    return _Gathering(trace, origin).evidence(blame)


def with_norms(trace: Trace, origin: Origin, evidence: Evidence) -> Evidence:
    """The same evidence with its :attr:`Evidence.norms`, which take their time in a large graph.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    return replace(evidence, norms=_Gathering(trace, origin).norms())


class _Gathering:
    """The graph around one node, read bit by bit."""

    def __init__(self, trace: Trace, origin: Origin) -> None:
        self._trace = trace
        self._origin = origin
        self._names: dict[int, str] = {}
        self._edges_into: dict[int, list[EdgeRow]] = {}
        self._health: dict[int, list[HealthRow]] = {}

    def evidence(self, blame: Blame | None) -> Evidence:
        trace, origin = self._trace, self._origin
        node, task = origin.node, origin.graph_task
        outputs = {
            row.slot: Health(*row[5:]) for row in self._measured(node) if row.role == "output"
        }
        wrong = trace.health_at(origin.seq)
        zeroing = self._zeroed_by()
        made_by = trace.forward_op(task, node) if origin.kind is OriginKind.NODE else None
        return Evidence(
            kind=origin.kind,
            node=self._name(node),
            received=self._apart(node) if origin.kind is OriginKind.SUM else self._received(node),
            outputs=outputs if origin.kind is OriginKind.NODE else {},
            wrong=None if wrong is None else Health(*wrong[5:]),
            saved={row.name: row for row in trace.saved_health(task, node)},
            consumers={output: tuple(self._behind(node, output)) for output in outputs},
            near=self._near(node),
            zeroed_by="" if zeroing is None else self._name(zeroing),
            is_weight=zeroing is not None and len(self._from(zeroing)) > 1,
            scale=self._scale(),
            is_partial=self._is_partial(),
            hooks=tuple(self._hooks()),
            had_grad=self._had_grad(),
            was_bad_before=self._was_bad_before(),
            written=self._written(wrong),
            arguments=() if made_by is None else arguments(trace, made_by),
            result=made_by.outputs[0].health if made_by is not None and made_by.outputs else None,
            blame=blame,
            is_blamed=blame is not None and made_by is not None and blame.op.id == made_by.id,
        )

    def _name(self, node: int) -> str:
        name = self._names.get(node)
        if name is None:
            name = self._names[node] = self._trace.name(self._origin.graph_task, node)
        return name

    def _into(self, node: int) -> list[EdgeRow]:
        edges = self._edges_into.get(node)
        if edges is None:
            edges = self._trace.edges_into(self._origin.graph_task, node)
            self._edges_into[node] = edges
        return edges

    def _measured(self, node: int) -> list[HealthRow]:
        rows = self._health.get(node)
        if rows is None:
            rows = self._health[node] = self._trace.health(self._origin.graph_task, node)
        return rows

    def _put_out(self, node: int, output: int) -> HealthRow | None:
        rows = self._measured(node)
        return next((row for row in rows if row.role == "output" and row.slot == output), None)

    def _received(self, node: int) -> tuple[Received, ...]:
        """What came in at each slot: what several came to, what one put out, or the caller's."""
        by_slot: dict[int, list[EdgeRow]] = {}
        for edge in self._into(node):
            if self._put_out(edge.producer, edge.output) is not None:
                by_slot.setdefault(edge.slot, []).append(edge)
        given = {
            row.slot: Health(*row[5:])
            for row in self._measured(node)
            if row.role in {"sum", "root", "captured", "replaced"}
        }
        found = []
        for slot in sorted(by_slot.keys() | given.keys()):
            edges = by_slot.get(slot, [])
            health = given.get(slot)
            if health is None and len(edges) == 1:
                row = self._put_out(edges[0].producer, edges[0].output)
                health = None if row is None else Health(*row[5:])
            names = tuple(self._name(edge.producer) for edge in edges)
            found.append(Received(slot, names, health))
        return tuple(found)

    def _apart(self, node: int) -> tuple[Received, ...]:
        """The gradients that met in one slot, each for itself."""
        found = []
        for edge in self._into(node):
            row = self._put_out(edge.producer, edge.output)
            if row is not None and edge.slot == self._origin.slot:
                name = self._name(edge.producer)
                found.append(Received(edge.slot, (name,), Health(*row[5:])))
        return tuple(found)

    def _behind(self, node: int, output: int) -> Iterator[str]:
        """Names along the way of an output, as long as there is one way only."""
        edges = [edge for edge in self._from(node) if edge.output == output]
        for _ in range(_MOST_STEPS):
            targets = {(edge.consumer, edge.slot) for edge in edges}
            if len(targets) != 1:
                return
            ((node, _),) = targets
            name = self._name(node)
            edges = self._from(node)
            is_square = len(edges) == 2 and edges[0].consumer == edges[1].consumer
            if base_name(name) not in _RESHAPING:
                yield SQUARE if is_square and base_name(name) == "Mul" else name

    def _near(self, node: int) -> frozenset[str]:
        found: set[int] = set()
        last = {node}
        for _ in range(_MOST_NEAR):
            last = {edge.consumer for each in last for edge in self._from(each)} - found
            found |= last
            if len(found) > _MOST_NODES_NEAR:
                break
        return frozenset(base_name(self._name(each)) for each in found)

    def _from(self, node: int) -> list[EdgeRow]:
        return self._trace.edges_from(self._origin.graph_task, node)

    def _zeroed_by(self) -> int | None:
        """The nearest node upstream that put out more zeros than it was given.

        A ``torch.where`` on the way goes before it: what it left out was never in the forward, also
        where the gradient was zero there anyway.
        """
        node, chose = self._origin.node, None
        for _ in range(_MOST_STEPS):
            received = self._received(node)
            if len(received) != 1 or received[0].health is None or not received[0].health.zero:
                return None
            edges = self._into(node)
            if len(edges) != 1:
                return None
            producer = edges[0].producer
            before = self._received(producer)
            zeros = sum(_share_of_zeros(given.health) for given in before)
            if _share_of_zeros(received[0].health) > zeros:
                return producer if chose is None else chose
            if base_name(self._name(producer)) in _CHOOSING:
                chose = producer if chose is None else chose
            node = producer
        return None

    def _scale(self) -> float | None:
        """The largest gradient of a single number, from the root on."""
        roots = [row for row in self._measured(0) if row.role == "root"]
        if len(roots) != 1 or roots[0].numel != 1:
            return None
        largest, node = magnitude(roots[0]), 0
        for _ in range(_MOST_STEPS):
            edges = self._from(node)
            if len(edges) != 1 or node == self._origin.node:
                break
            row = self._put_out(node, edges[0].output)
            if row is None or row.numel != 1 or bad(row):
                break
            largest = max(largest, magnitude(row))
            node = edges[0].consumer
        return largest if largest > 1 else None

    def norms(self) -> tuple[tuple[str, float], ...]:
        """From a root to the origin, each time along the gradient with the largest norm."""
        ways = Ways(self._trace, self._origin.graph_task, self._origin.seq)
        ways.read_on(self._trace)
        found: list[tuple[str, float]] = []
        node, met = self._origin.node, {self._origin.node}
        while len(found) < _MOST_ON_PATH:
            known = (way for way in ways.into(node) if way.norm is not None)
            way = next(known, None)
            if way is None or way.producer in met:
                break
            node = way.producer
            found.append((self._name(node), way.size))
            met.add(node)
        return tuple(reversed(found))

    def _is_partial(self) -> bool:
        task = self._origin.graph_task
        return any(
            self._trace.node(task, edge.producer).status is NodeStatus.UNKNOWN
            for edge in self._into(self._origin.node)
        )

    def _hooks(self) -> Iterator[Hook]:
        """Those that replaced a gradient at the node before it was found to be non-finite."""
        for event in self._trace.story(self._origin.graph_task, self._origin.node):
            if event.seq > self._origin.seq:
                return
            if isinstance(event, events.HookCalled):
                gave = self._trace.health_at(event.seq)
                if event.changed or gave is not None:
                    yield Hook(event.kind, event.name, None if gave is None else Health(*gave[5:]))

    def _was_bad_before(self) -> bool:
        own = self._trace.graph_tasks.root(self._origin.graph_task)
        earlier = map(self._trace.graph_tasks.root, self._trace.nonfinite_graph_tasks())
        return any(number < own for number in earlier)

    def _written(self, wrong: HealthRow | None) -> ForwardOpRow | None:
        if self._origin.kind is not OriginKind.ACCUMULATED or wrong is None:
            return None
        return nonfinite_write(
            self._trace,
            lambda _op, row: (
                row.shape == wrong.shape and not row.parameter and not row.requires_grad
            ),
            self._trace.graph_tasks.root(self._origin.graph_task),
        )

    def _had_grad(self) -> bool | None:
        if self._origin.kind is not OriginKind.ACCUMULATED:
            return None
        parameters = self._trace.parameters(self._origin.graph_task)
        return next((row.had_grad for row in parameters if row.node == self._origin.node), None)


def _share_of_zeros(health: Health | None) -> float:
    return health.zero / health.numbers if health is not None and health.numbers else 0.0
