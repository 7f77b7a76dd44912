"""Which node turned a gradient that flowed into zeros, or into none."""

from __future__ import annotations

import math
import re
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.causes import Cause, is_choice
from agviz.analysis.gradient_flow import GradientFlow, GradientValue, is_custom
from agviz.words.shapes import write_shape

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agviz.traces.health import HealthRow
    from agviz.traces.reader import Trace
    from agviz.traces.rows import NodeRow

_KINDS: Final[dict[Cause, str]] = {
    Cause.DEAD_ACTIVATION: "Relu|Relu6|Threshold|Hardtanh|Clamp|ClampMin|ClampMax|Hardsigmoid"
    "|Hardswish|Sigmoid|Tanh|Elu|Gelu|Silu|Celu|Selu|Softplus|LogSigmoid|LogSigmoidForward"
    "|Softshrink|Hardshrink|Mish|LeakyRelu",
    Cause.MASKED: "Where|MaskedFill|MaskedSelect|MaskedScatter|Maximum|Minimum|NativeDropout"
    "|Embedding|EmbeddingBag|Tril|Triu",
    Cause.CANCELLED: "Index|IndexSelect|Gather",
    Cause.OVERWRITTEN: "Zero|Fill|Copy|CopySlices|IndexPut|IndexPutImpl|IndexFill|IndexCopy"
    "|Scatter|Uniform|Normal|Random|Exponential|Bernoulli",
    Cause.NOT_IN_LOSS: "Cat|Stack|Pad|ConstantPadNd",
    Cause.FLAT: "Round|Floor|Ceil|Trunc|Sign|Sgn|Heaviside|Softmax|LogSoftmax|FloorDivide|Var|Std",
    Cause.ZERO_FACTOR: "Mm|Addmm|Bmm|Baddbmm|Convolution|Dot|Mv|Addmv|Addr|Linear|Bilinear"
    "|Prod|Einsum",
}
_BY_KIND: Final = {kind: cause for cause, kinds in _KINDS.items() for kind in kinds.split("|")}
_NAME: Final = re.compile(r"(\w+?)(?:Backward\d*|Backwards)?")
_WRITING: Final = re.compile(r"CopySlices|CopyBackwards|IndexPut\w*Backward\d|IndexCopyBackward\d")
"""Nodes of functions that write a tensor into another; from output 1 on, the gradient of what was
written."""
SAMPLERS: Final = frozenset({"GridSampler2D", "GridSampler3D"})
"""Kinds of nodes of ``grid_sample``."""
_TINY: Final = 6e-5
"""Half-precision gradients below this are on their way to vanish (the least normal float16)."""
_TINY_ELSEWHERE: Final = {"float32": 1e-30, "bfloat16": 1e-30, "float64": 1e-290}
"""Next to nothing of gradients below this is left, whatever they are multiplied by."""


_MOST_ENDS: Final = 16
_MOST_BETWEEN: Final = 50
_Place = tuple[int, int]
"""A graph task and one of its nodes."""
_End = tuple[int, int, int]
"""A node that put out nothing though something came in, and which output; -1: the sum of what came
in was nothing."""


class Vanished(NamedTuple):
    """Where gradients ended on their way to a parameter."""

    cause: Cause
    graph_task: int
    node: NodeRow
    """The node that put out nothing though something came in; where several gradients cancelled,
    the one at which they met."""
    others: int
    """Nodes besides it at which gradients to the same parameter ended."""
    hook: str = ""
    """Name of the hook, where one did it."""
    dtype: str = ""
    """Of what it put out."""
    details: tuple[str, ...] = ()
    """Figures, in sentences."""
    output: int = 0
    """Of the node: which one was nothing; -1: where gradients that met cancelled."""
    ways: tuple[NodeRow, ...] = ()
    """Where gradients cancelled: the node at which the ways of what met part, then those between
    there and the meeting, the nearest to the loss first; empty: it is not known."""


class Vanishing:
    """Answers for one trace; what was read of it is kept."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._flows: dict[int, GradientFlow] = {}
        self._known_ends: dict[_Place, tuple[_End, ...]] = {}
        self._judged: dict[_End, Vanished] = {}

    def flow(self, graph_task: int) -> GradientFlow:
        """The gradients of a graph task."""
        flow = self._flows.get(graph_task)
        if flow is None:
            flow = self._flows[graph_task] = GradientFlow(self._trace, graph_task)
        return flow

    def find(self, graph_task: int, leaf: int) -> Vanished | None:
        """Where the gradients on their way to an AccumulateGrad node ended.

        None where that is not known: not everything was recorded. Raises TraceError where the file
        is damaged.
        """
        flow = self.flow(graph_task)
        if flow.input(leaf, 0)[0] is GradientValue.SOME:
            hooks = flow.hooks(leaf)
            changing = [event for event in hooks if event.changed] or hooks
            cause = Cause.HOOK if changing else Cause.UNKNOWN
            name = " or ".join(dict.fromkeys(event.name for event in changing))
            return Vanished(cause, graph_task, flow.nodes[leaf], 0, name)
        found = self._ends((graph_task, leaf))
        if not found:
            return None
        first = min(found, key=self._order)
        if first not in self._judged:
            self._judged[first] = self._judge(*first)
        others = len({end[:2] for end in found}) - 1
        return self._judged[first]._replace(others=others)

    def _order(self, end: _End) -> tuple[int, bool, int, int]:
        """Where one argument is chosen, what becomes of the other one's gradient tells more."""
        graph_task, index, output = end
        node = self.flow(graph_task).nodes[index]
        return graph_task, is_choice(node.short_name), node.order or 0, output

    def _ends(self, leaf: _Place) -> tuple[_End, ...]:
        """Where the gradients on their way to a node ended; what is found is kept for all nodes."""
        waiting = [leaf]
        asked: dict[_Place, tuple[list[_End], list[_Place]]] = {}
        while waiting:
            place = waiting[-1]
            if place in self._known_ends:
                waiting.pop()
                continue
            if place not in asked:
                asked[place] = self._above(place)
                waiting += [each for each in asked[place][1] if each not in self._known_ends]
                continue
            waiting.pop()
            ends, above = asked.pop(place)
            for each in above:
                ends += self._known_ends[each]
            self._known_ends[place] = tuple(dict.fromkeys(ends))[:_MOST_ENDS]
        return self._known_ends[leaf]

    def _above(self, place: _Place) -> tuple[list[_End], list[_Place]]:
        """The ends right before a node that got nothing, and the nodes to ask that got nothing."""
        number, node = place
        flow = self.flow(number)
        edges = flow.edges_into(node)
        if not edges:
            task = self._trace.graph_task(number)
            if task.parent < 0:
                return [(number, node, 0)], []
            return [], [(task.parent, task.parent_node)]
        ends: list[_End] = []
        above: dict[_Place, None] = {}
        for edge in edges:
            value = flow.output(edge.producer, edge.output)[0]
            if value is GradientValue.SOME:
                return [(number, node, -1)], []
            if value is GradientValue.UNKNOWN:
                continue
            received = {each[0] for each in flow.inputs(edge.producer)}
            if GradientValue.SOME in received:
                ends.append((number, edge.producer, edge.output))
            elif GradientValue.UNKNOWN not in received or not flow.edges_into(edge.producer):
                above[number, edge.producer] = None
        return ends, list(above)

    def _judge(self, graph_task: int, index: int, slot: int) -> Vanished:
        flow = self.flow(graph_task)
        node = flow.nodes[index]
        if slot < 0:
            return Vanished(
                Cause.CANCELLED, flow.graph_task, node, 0, output=slot, ways=_ways(flow, node)
            )
        if all(value is not GradientValue.SOME for value, _ in flow.inputs(index)):
            return Vanished(Cause.ROOT, flow.graph_task, node, 0)
        if slot < len(node.output_shapes) and 0 in (node.output_shapes[slot] or ()):
            return Vanished(Cause.NO_ELEMENTS, flow.graph_task, node, 0)
        cause, hook = _by_hook(flow, node)
        if cause is None:
            if slot and _WRITING.fullmatch(node.short_name):
                node, slot = _overwriter(flow, node, slot)
            cause = _by_function(node, flow, slot)
            if cause in {Cause.UNKNOWN, Cause.ZERO_FACTOR} and not flow.puts_out_any(node.index):
                hooks = flow.hooks(node.index)  # one that writes into what it is given
                if hooks:
                    cause, hook = Cause.HOOK, hooks[0].name
        after = flow.output(node.index, slot)[1]
        dtype = "" if after is None else after.dtype
        details = tuple(_figures(flow, node, slot))
        return Vanished(cause, flow.graph_task, node, 0, hook, dtype, details, slot)


def _ways(flow: GradientFlow, meeting: NodeRow) -> tuple[NodeRow, ...]:
    """The ways of gradients that meet, as ``Vanished.ways`` has them."""
    above = [
        _above(flow, edge.producer)
        for edge in flow.edges_into(meeting.index)
        if flow.output(edge.producer, edge.output)[0] is GradientValue.SOME
    ]
    common = set.intersection(*above) if len(above) > 1 else set()
    if not common:
        return ()
    parted = max(common, key=lambda node: flow.nodes[node].order or 0)
    between = sorted(set.union(*above) - common, key=lambda node: flow.nodes[node].order or 0)
    return tuple(flow.nodes[node] for node in (parted, *between[:_MOST_BETWEEN]))


def _above(flow: GradientFlow, node: int) -> set[int]:
    """A node, and those from which its gradient came."""
    seen, waiting = {node}, [node]
    while waiting:
        new = {edge.producer for edge in flow.edges_into(waiting.pop())} - seen
        seen |= new
        waiting += new
    return seen


def _by_hook(flow: GradientFlow, node: NodeRow) -> tuple[Cause | None, str]:
    """Whether a hook of the node replaced a gradient, and its name."""
    changing = [event.name for event in flow.hooks(node.index) if event.changed]
    if changing:
        return Cause.HOOK, changing[0]
    if node.short_name.startswith("BackwardHookFunction"):
        return Cause.HOOK, "of a module (register_full_backward_hook)"
    return None, ""


def _overwriter(flow: GradientFlow, written: NodeRow, slot: int) -> tuple[NodeRow, int]:
    """The function that wrote over what ``written`` had put into a tensor, and its output 0.

    It is between there and the loss, nearest to ``written``; where there is none, what was asked.
    """
    seen = {written.index}
    waiting = deque([written.index])
    while waiting:
        for edge in flow.edges_into(waiting.popleft()):
            node = flow.nodes[edge.producer]
            if _BY_KIND.get(_kind(node)) is Cause.OVERWRITTEN and not edge.output:
                return node, 0
            if edge.producer not in seen:
                seen.add(edge.producer)
                waiting.append(edge.producer)
    return written, slot


def _figures(flow: GradientFlow, node: NodeRow, slot: int) -> Iterator[str]:
    number = "" if node.order is None else f", number {node.order:,} to run,"
    yield f"Node {node.index:,} ({node.name}){number} of backward pass {flow.graph_task}."
    for place, (value, row) in enumerate(flow.inputs(node.index)):
        if row is not None and value is GradientValue.SOME:
            norm = "" if row.norm is None else f", norm {row.norm:.3g}"
            what = f"{row.dtype} {write_shape(row.shape)}".rstrip()
            yield (
                f"In came {what} in slot {place}{norm}: "
                f"{row.numbers - row.zero:,} of {row.numbers:,} numbers are not zero."
            )
    value, row = flow.output(node.index, slot)
    yield f"Its output {slot} was {'None' if value is GradientValue.NONE else 'zero throughout'}."


def _by_function(node: NodeRow, flow: GradientFlow, slot: int) -> Cause:
    """What the function of a node did that put out nothing though something came in."""
    value, after = flow.output(node.index, slot)
    before = [row for found, row in flow.inputs(node.index) if found is GradientValue.SOME and row]
    kind = _kind(node)
    if value is GradientValue.NONE or is_custom(node):
        return Cause.RETURNED_NONE if value is GradientValue.NONE else Cause.FLAT
    if after is not None and _underflows(kind, before, after):
        return Cause.UNDERFLOW
    if slot and _WRITING.fullmatch(node.short_name):
        return Cause.NOT_IN_LOSS
    if kind == "Mul":
        return _factor(flow, node, slot, before)
    # Of a backward: a second derivative. Where pixels are interpolated, the grid has a slope.
    if kind.endswith("Backward") or (kind in SAMPLERS and slot == 1):
        return Cause.FLAT
    return _BY_KIND.get(kind, Cause.UNKNOWN)


def _factor(flow: GradientFlow, node: NodeRow, slot: int, before: Iterable[HealthRow]) -> Cause:
    """What a factor of zeros is in an elementwise product."""
    if all(row.numel == 1 for row in before):
        return Cause.ZERO_WEIGHT
    name = "self" if slot else "other"
    shapes = [
        row.shape for row in flow.trace.saved(flow.graph_task, node.index) if row.name == name
    ]
    is_single = any(shape is not None and math.prod(shape) == 1 for shape in shapes)
    return Cause.ZERO_FACTOR if is_single else Cause.MASKED


def _kind(node: NodeRow) -> str:
    """``Relu`` of ``ReluBackward0``."""
    match = _NAME.fullmatch(node.short_name)
    return match[1] if match else ""


def _underflows(kind: str, before: Iterable[HealthRow], after: HealthRow) -> bool:
    largest = max((max(-(row.min or 0.0), row.max or 0.0) for row in before), default=0.0)
    if kind == "ToCopy":
        return any(row.dtype != after.dtype for row in before)
    if 0 < largest < _TINY_ELSEWHERE.get(after.dtype, 0.0):
        return True
    is_sure = kind in _BY_KIND and _BY_KIND[kind] is not Cause.ZERO_FACTOR
    return after.dtype == "float16" and 0 < largest < _TINY and not is_sure
