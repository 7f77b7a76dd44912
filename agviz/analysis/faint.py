"""Gradients that are practically zero: how that is decided, and where they became so.

Note [Practically zero]
Two things have to be measured. The gradient's norm is at most a millionth of its parameter's
(:data:`LEAST`): plain SGD with a learning rate of 1 would need a million steps to change it by as
much as it is. And it fell to a millionth or less of the largest gradient on its way from the loss:
of a training that has come to its minimum, all gradients are small, from the loss on. So the way
begins behind the loss function, whose derivative is as small as what is left to be learnt. Only
where the loss itself was multiplied by next to nothing it begins at the root.

What that means for the training is not said: Adam, say, divides a gradient by its own size.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.causes import Cause
from agviz.analysis.evidence import base_name
from agviz.analysis.gradient_flow import GradientValue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz.analysis.gradient_flow import GradientFlow
    from agviz.traces.rows import NodeRow

LEAST: Final = 1e-6
"""Of a parameter's norm, and of the largest gradient on the way: more is not next to nothing."""
LEAST_BESIDE_ZEROS: Final = 1e-9
"""Of the largest gradient on the way, where the parameter's own norm is 0 or not known."""
_EPSILON: Final = {"float32": 2.0**-23, "float64": 2.0**-52}
"""Of types whose sums are rounded as often as they are added to."""
_MOST_STEPS: Final = 20_000
_ABOUT: Final = 0.5
"""Of the largest, of what is about as large."""
LOSS_NODES: Final = 12
"""Behind the root, among which the loss function is looked for."""
_LOSSES: Final = frozenset(
    {
        *("Pow", "MseLoss", "SmoothL1Loss", "HuberLoss", "L1Loss", "NllLoss", "NllLoss2D"),
        *("LogSoftmax", "BinaryCrossEntropy", "BinaryCrossEntropyWithLogits", "KlDiv", "CtcLoss"),
        *("SoftMarginLoss", "MultiMarginLoss", "MultilabelMarginLoss", "LogSigmoid", "Softplus"),
        *("LogSigmoidForward", "Norm", "LinalgVectorNorm", "Abs", "Log"),
    }
)
"""Functions whose derivative is small where little is left to be learnt."""
_COMPARISONS: Final = frozenset({"MseLoss", "SmoothL1Loss", "HuberLoss"})
"""Those whose derivative is next to nothing only where outputs are equal to targets."""
_PROBABILITIES: Final = frozenset({"Softmax", "Sigmoid"})
"""The same, of what a logarithm takes."""
_SHIFTED: Final = frozenset(
    {
        *("NativeBatchNorm", "CudnnBatchNorm", "MiopenBatchNorm", "BatchNorm", "NativeGroupNorm"),
        *("Softmax", "LogSoftmax", "ScaledDotProductFlashAttention", "InstanceNorm"),
        *("ScaledDotProductFlashAttentionForCpu", "ScaledDotProductEfficientAttention"),
        *("ScaledDotProductCudnnAttention",),
    }
)
"""Functions that take out again what was added to all that they normalise."""
_PASSING: Final = frozenset(
    {
        *("Bmm", "Mm", "Baddbmm", "Addmm", "Mul", "Div", "View", "UnsafeView", "Transpose", "T"),
        *("Permute", "Clone", "Expand", "Reshape", "ReshapeAlias", "Squeeze", "Unsqueeze", "Add"),
        *("MaskedFill", "Where", "Contiguous", "ToCopy", "Unflatten", "Select", "Split", "Unbind"),
    }
)
_SUMMING: Final = frozenset({"Sum", "Addmm", "Convolution", "Add", "Mean"})
_FEWEST_STEPS: Final = 4
"""In which a gradient has to grow, to speak of steps."""
_STEEP: Final = 0.5
"""The share of the whole fall, in logarithms, that a single place has to have to be named alone."""


class Faint(NamedTuple):
    """Where a gradient became practically zero."""

    cause: Cause
    node: NodeRow
    """Where it fell most; of a fall in many steps, the first of the kind that made most of it, at
    the line that did."""
    steps: int
    """How many nodes of this kind made it smaller; 1: it fell at this one."""
    before: float
    """The largest norm on the way from the loss."""


class GrownGradient(NamedTuple):
    """Where a gradient became larger, step by step."""

    node: NodeRow
    """The first of the kind that made most of it, at the line that did."""
    steps: int
    """How many nodes of this kind made it larger."""
    first: float
    last: float
    """Its norm behind the loss function, and at the end."""


class Compared(NamedTuple):
    """Where outputs and targets are compared."""

    node: int
    """Whose function was given both."""
    apart: float
    """More than the norm of their difference."""


class _Step(NamedTuple):
    """A node on the way from the loss to a parameter."""

    node: int
    given: float
    """The largest norm of what came in."""
    gave: float
    """The norm of what it put out towards the parameter."""
    numel: int
    """Of what came in."""


class Faintness:
    """Which gradients of a pass are practically zero; what was read of it is kept.

    Args:
        flow: its gradients.
    """

    def __init__(self, flow: GradientFlow) -> None:
        self._flow = flow
        self._before: dict[int, _Step | None] = {}
        """The step before a node on its way from the root; None: there is none."""

    def find(self, leaf: int, gradient: float, parameter: float | None) -> Faint | None:
        """Where the gradient of a parameter became practically zero; None where it is not.

        Args:
            leaf: the parameter's AccumulateGrad.
            gradient: norm of what arrived there.
            parameter: norm of the parameter; None: not known.

        Raises:
            agviz.errors.TraceError: the file is damaged.
        """
        shift = self._rounding(leaf)
        if shift is not None and _is_shift(self._flow, shift, self._way(leaf)):
            return shift
        most = LEAST * parameter if parameter else LEAST_BESIDE_ZEROS
        way = self._way(leaf) if 0 < gradient <= most else []
        if not way:
            return None
        flow = self._flow
        begin, end = _extent(flow, way)
        root = way[0].given
        if 0 < _spread_out(flow, way, begin) <= LEAST * root:
            falls = _falls(way[: begin + 1])
            return _named(flow, falls, root, Cause.FAINT_LOSS)
        behind = way[end:]
        largest = max((step.given for step in behind), default=0.0)
        least = LEAST if parameter else LEAST_BESIDE_ZEROS
        if not behind or gradient > least * largest:
            return None
        found = _named(flow, _falls([*behind, _Step(leaf, gradient, gradient, 0)]), largest)
        return found._replace(cause=Cause.SHIFT) if _is_shift(flow, found, way) else found

    def _rounding(self, leaf: int) -> Faint | None:
        """Where the gradient of a parameter is a sum that comes to no more than its rounding."""
        step = self._known_step(leaf)
        node = None if step is None else self._flow.nodes[step.node]
        if step is None or node is None or base_name(node.short_name) not in _SUMMING:
            return None
        types = {row.dtype for _, row in self._flow.inputs(step.node) if row}
        if not types or not types <= _EPSILON.keys():
            return None
        most = max(map(_EPSILON.__getitem__, types)) * math.sqrt(step.numel) * step.given
        return Faint(Cause.SHIFT, node, 1, step.given) if 0 < step.gave <= most else None

    def modules(self, leaf: int) -> list[str]:
        """The modules that the gradient of a parameter came through, from the loss on.

        Raises:
            agviz.errors.TraceError: the file is damaged.
        """
        passed = [self._flow.nodes[step.node].module for step in self._way(leaf)]
        return list(dict.fromkeys(filter(None, passed)))

    def shrunk(self, node: int) -> Faint | None:
        """Where a gradient that is too small for its dtype at a node became so small.

        None: not step by step, or something on its way was not measured.

        Args:
            node: the last one to which anything came.

        Raises:
            agviz.errors.TraceError: the file is damaged.
        """
        way = self._way(node)
        if not way or way[-1].gave > LEAST_BESIDE_ZEROS * way[0].given:
            return None
        found = _named(self._flow, _falls(way), way[0].given)
        return found if found.steps > 1 else None

    def grown(self, leaf: int) -> GrownGradient | None:
        """How a gradient grew step by step; None: it did not, or something was not measured.

        Raises:
            agviz.errors.TraceError: the file is damaged.
        """
        way = self._way(leaf, is_far=True)
        behind = way[_extent(self._flow, way)[1] :] if way else []
        if not behind or not 0 < behind[0].given < behind[-1].gave:
            return None
        named = _named(self._flow, _falls(behind, rises=True), behind[0].given)
        if named.steps < _FEWEST_STEPS:
            return None
        return GrownGradient(named.node, named.steps, named.before, behind[-1].gave)

    def compared(self, node: int) -> Compared | None:
        """What compares outputs and targets by a difference, and gives next to nothing to a node.

        None: nothing of the kind is on its way.

        Args:
            node: the last one to which anything came.

        Raises:
            agviz.errors.TraceError: the file is damaged.
        """
        way = self._way(node)
        if not way:
            return None
        begin, _ = _extent(self._flow, way)
        names = [base_name(self._flow.nodes[step.node].short_name) for step in way]
        for step, name, behind in zip(
            way[: begin + LOSS_NODES], names, [*names[1:], ""], strict=False
        ):
            is_difference = name in _COMPARISONS or (name, behind) == ("Pow", "Sub")
            if is_difference and step.gave <= LEAST_BESIDE_ZEROS * step.given:
                subtracting = way[names.index("Sub")] if name == "Pow" else step
                return Compared(subtracting.node, step.gave / step.given * max(1, step.numel))
        return None

    def _way(self, leaf: int, *, is_far: bool = False) -> list[_Step]:
        """From the root to a leaf, each time back along the largest gradient.

        Empty where something on it was not measured, or is not finite. A weight that is used again
        and again, of a state that grows as the gradient shrinks, gets about the same from each use:
        with ``is_far`` the way begins at the last of those that are about as large as any.
        """
        found: list[_Step] = []
        node = leaf
        while len(found) < _MOST_STEPS:
            if is_far and node == leaf:
                step = self._step_before(node, _ABOUT)
            else:
                step = self._known_step(node)
            if step is None:
                return found[::-1]
            if not (math.isfinite(step.given) and math.isfinite(step.gave)):
                return []
            found.append(step)
            node = step.node
        return []

    def _known_step(self, node: int) -> _Step | None:
        """The same for the largest gradient, read once."""
        if node not in self._before:
            self._before[node] = self._step_before(node)
        return self._before[node]

    def _step_before(self, node: int, share: float = 1.0) -> _Step | None:
        """The farthest from the root of those that gave so much of what the largest gave."""
        flow = self._flow
        into = [
            (row.norm or 0.0, edge.producer)
            for edge in flow.edges_into(node)
            if (row := flow.output(edge.producer, edge.output)[1]) is not None
        ]
        if not into:
            return None
        least = share * max(into)[0]
        producer, gave = max((producer, gave) for gave, producer in into if gave >= least)
        given = [row for value, row in flow.inputs(producer) if value is GradientValue.SOME and row]
        norms = [row.norm or 0.0 for row in given]
        largest = max(norms, default=math.nan)
        return _Step(producer, largest, gave, max((row.numel for row in given), default=0))


def _extent(flow: GradientFlow, way: Sequence[_Step]) -> tuple[int, int]:
    """How many steps concern single numbers, and how many the loss function."""
    begin = next((i for i, step in enumerate(way) if step.numel > 1), len(way) - 1)
    names = [flow.nodes[step.node].short_name for step in way[: begin + LOSS_NODES]]
    return begin, behind_loss(names, begin)


def behind_loss(called: Sequence[str], begin: int) -> int:
    """How many steps concern the loss function.

    Args:
        called: the short names of nodes on the way from the root, at least the first
            ``begin + LOSS_NODES``, if there are so many.
        begin: how many steps concern single numbers.
    """
    names = [base_name(name) for name in called[: begin + LOSS_NODES]]
    end = begin
    for place, (name, behind) in enumerate(zip(names, [*names[1:], ""], strict=True)):
        before = names[place - 1] if place else ""
        is_residual = (name, behind) == ("Mul", "Sub")
        if name in _LOSSES or is_residual or (name in _PROBABILITIES and before == "Log"):
            end = max(begin, place + 1)
    return end


def _spread_out(flow: GradientFlow, way: Sequence[_Step], begin: int) -> float:
    """The norm of what came of the single numbers, but for the loss function's own derivative."""
    if begin and base_name(flow.nodes[way[begin - 1].node].short_name) in _LOSSES:
        return way[begin - 1].given * math.sqrt(way[begin].numel)
    return way[begin].given


class _Fall(NamedTuple):
    """A place where the gradient became smaller, or larger."""

    node: int
    size: float
    """In powers of ten."""
    is_meeting: bool
    """Whether the gradients that meet before the node cancel; else its function made it so."""


def _falls(way: Sequence[_Step], *, rises: bool = False) -> list[_Fall]:
    sign = 1 if rises else -1
    found = []
    before = way[0].given
    for step in way:
        for after, is_meeting in ((step.given, True), (step.gave, False)):
            size = math.log10(after / before) * sign if after > 0 and before > 0 else 0.0
            if size > 0:
                found.append(_Fall(step.node, size, is_meeting))
            before = after
    return found


def _named(
    flow: GradientFlow, falls: Sequence[_Fall], before: float, cause: Cause = Cause.FAINT
) -> Faint:
    """The place of the fall: one node, or the kind of nodes that made most of it."""
    whole = sum(fall.size for fall in falls)
    steepest = max(falls, key=lambda fall: fall.size)
    if steepest.size >= _STEEP * whole:
        if steepest.is_meeting and cause is Cause.FAINT:
            cause = Cause.FAINT_MEETING
        return Faint(cause, flow.nodes[steepest.node], 1, before)
    kinds: dict[str, float] = {}
    for fall in falls:
        name = flow.nodes[fall.node].short_name
        kinds[name] = kinds.get(name, 0.0) + fall.size
    kind = max(kinds, key=kinds.__getitem__)
    of_kind = [fall for fall in falls if flow.nodes[fall.node].short_name == kind]
    lines: dict[str | None, float] = {}
    for fall in of_kind:
        line = flow.nodes[fall.node].line
        lines[line] = lines.get(line, 0.0) + fall.size
    steepest_line = max(lines, key=lines.__getitem__)
    first = next(each for each in of_kind if flow.nodes[each.node].line == steepest_line)
    return Faint(cause, flow.nodes[first.node], len(of_kind), before)


def _is_shift(flow: GradientFlow, found: Faint, way: Sequence[_Step]) -> bool:
    """Whether it was added to what a normalisation or a softmax makes no difference of."""
    names = [base_name(flow.nodes[step.node].short_name) for step in way]
    place = next((i for i, step in enumerate(way) if step.node == found.node.index), None)
    if place is None or found.steps > 1 or names[place] not in _SUMMING:
        return False
    for name in reversed(names[:place]):
        if name in _SHIFTED:
            return True
        if name not in _PASSING:
            return False
    return False
