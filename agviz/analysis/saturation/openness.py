"""How far an activation is open: what it lets through of a gradient, beside the most that it can.

Note [Open]
The derivative of sigmoid, tanh, ReLU or softmax is next to nothing where its output is at the rim
of its range (0 and 1, -1 and 1, 0, one-hot), and that of a clamp is 0 beyond its bounds. So the
norm of what a node puts out over the norm of what came in is the slope that the gradient met, as a
root mean square. Every recording holds both.
The square of it, over that of the slope of a function that is not at its rim (:data:`SLOPES`;
softmax over n entries: 1/n, as where all are equal), is how far the node is open: about the share
of its outputs that are not at the rim, by the gradient that comes to them. For softmax, what it put
out says more, where the forward is recorded: one minus the sum of squares of a row, over the most
that it can be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.analysis.gradient_flow import GradientValue
from agviz.analysis.measures import bad

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agviz.analysis.gradient_flow import GradientFlow
    from agviz.measure.values import Health
    from agviz.traces.rows import NodeRow

CLAMP: Final = "clamp"
"""A function that bounds numbers of any kind, and no activation by itself."""
FUNCTIONS: Final[Mapping[str, str]] = {
    "SigmoidBackward0": "sigmoid",
    "TanhBackward0": "tanh",
    "ReluBackward0": "relu",
    "SoftmaxBackward0": "softmax",
    "HardtanhBackward0": "hardtanh",
    "HardsigmoidBackward0": "hardsigmoid",
    "ClampBackward0": CLAMP,
    "ClampBackward1": CLAMP,
    "ClampMaxBackward0": CLAMP,
}
"""Names of nodes, and of the functions that make them (relu6 is a hardtanh). Below the bound of
``clamp_min`` there is nothing left to learn of a hinge, or of a floor."""
SLOPES: Final[Mapping[str, float]] = {
    "sigmoid": 0.25,
    "tanh": 1.0,
    "relu": 1.0,
    "hardtanh": 1.0,
    "hardsigmoid": 1 / 6,
    CLAMP: 1.0,
}
"""The largest slope of each function."""
RIM: Final = 0.1
"""So far open, or less, is an activation whose outputs are at the rim, if not on purpose."""
SHUT: Final = RIM**2
"""So far open is one through which next to nothing is learnt."""
_ALL_ALIKE: Final = 0.99
"""Of the square of a gradient's norm: what its mean has to make up where all entries are alike."""
LOGITS_TOO_LARGE: Final = (
    "Its logits are too large: scale them, as attention does by 1 / sqrt(d), raise the temperature,"
    " or normalise its input."
)
"""What to do where a softmax is at its rim from the start."""
INPUT_TOO_LARGE: Final = (
    "What goes in is too large: use smaller initial weights, or normalise the input."
)
"""The same of other activations."""


def most(node: NodeRow) -> float | None:
    """The slope of an activation that is open; None: the node is none, or that is not known."""
    function = FUNCTIONS.get(node.short_name)
    if function != "softmax":
        return SLOPES.get(function or "")
    shapes = node.input_shapes
    entries = shapes[0][-1] if shapes and shapes[0] else 0
    return 1 / entries if entries > 1 else None


def slope(flow: GradientFlow, node: NodeRow) -> float | None:
    """The norm of what a node put out over that of what came in; None: not known, or nothing came.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    value, came = next(iter(flow.inputs(node.index)))
    if value is not GradientValue.SOME or came is None or bad(came) or not came.norm:
        return None
    value, gave = flow.output(node.index, 0)
    if value is GradientValue.ZERO:
        return 0.0
    if value is not GradientValue.SOME or gave is None or bad(gave) or gave.norm is None:
        return None
    return gave.norm / came.norm


def openness(flow: GradientFlow, node: NodeRow) -> float | None:
    """How far an activation is open, from 0 to 1: Note [Open]; None: not known, or it is none.

    Of softmax it is not known where the gradient is the same for all entries: none of that passes,
    however open it is. So is the gradient of an entropy where all probabilities are the same.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    largest = most(node)
    if largest is None:
        return None
    met = slope(flow, node)
    if met is None:
        return None
    far = (met / largest) ** 2
    _, came = next(iter(flow.inputs(node.index)))
    if FUNCTIONS[node.short_name] == "softmax" and came is not None and came.norm:
        alike = (came.mean or 0.0) ** 2 * came.numbers / came.norm**2
        if alike > _ALL_ALIKE:
            return None
        far /= 1 - alike
    return min(1.0, far)


def openness_of_rows(outputs: Health) -> float | None:
    """How far a softmax is open, by what it put out; None: not measured, or rows of one entry.

    Rows add up to 1, so the mean of all entries is one over the length of a row.

    Args:
        outputs: what was measured of it.
    """
    if not outputs.numbers or not outputs.mean or outputs.norm is None or not outputs.is_finite:
        return None
    squares = outputs.norm**2 / outputs.numbers / outputs.mean
    room = 1 - outputs.mean
    return min(1.0, max(0.0, 1 - squares) / room) if 0 < room < 1 else None
