"""Rows for parameters without a gradient, and the words for their causes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from agviz.analysis.causes import REMEDIES, Cause, is_choice
from agviz.analysis.gradients import GradientRow
from agviz.analysis.lineage import last_name
from agviz.words.units import percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz.analysis.faint import Faint
    from agviz.analysis.gradients import GradientWord
    from agviz.analysis.lineage import Cut, Lineage
    from agviz.analysis.vanishing import Vanished
    from agviz.traces.rows import ForwardOpRow, Frame, ParameterRow

_WORDS: Final[dict[Cause, str]] = {
    Cause.FROZEN: "requires_grad is False",
    Cause.UNUSED: "no recorded function of the forward took it",
    Cause.NOT_IN_LOSS: "it is not in the loss; {op}() was the last to use it",
    Cause.NOT_REACHED: "not in the graph of the loss",
    Cause.DETACH: "cut by {op}()",
    Cause.DATA: "cut by .data",
    Cause.COPIED: "cut by copy.deepcopy(), which gives a parameter of its own",
    Cause.NO_GRAD: "used under torch.no_grad()",
    Cause.SAMPLED: "cut by sample(), which draws under torch.no_grad()",
    Cause.INFERENCE_MODE: "used under torch.inference_mode()",
    Cause.INTEGER: "cut by {op}(), which gives {dtype}",
    Cause.NEW_TENSOR: "cut by {name}(), which copies values only",
    Cause.LEFT_TORCH: "only its values left torch, by {op}()",
    Cause.NOT_DIFFERENTIABLE: "{name}() has no derivative for it as it took it",
    Cause.UNSEEN: "cut by something that was not recorded, after {op}()",
    Cause.COLLECTIVE: "cut by {op}(), which gives what it communicates without a graph",
    Cause.CHECKPOINT: "cut by a reentrant checkpoint none of whose inputs requires a gradient",
    Cause.NOT_IN_INPUTS: "not among the inputs= of backward",
    Cause.FAILED: "the backward pass ended before it came there ({what})",
    Cause.IN_NODE: "the backward pass ended while its AccumulateGrad ran ({what})",
    Cause.RETURNED_NONE: "{node} returned None for it",
    Cause.ROOT: "backward was given a gradient of zeros",
    Cause.DEAD_ACTIVATION: "{node} let nothing through: where a gradient came, it is flat",
    Cause.MASKED: "{node} let nothing through: the mask selects none of it",
    Cause.DROPPED: "{op}({arguments}) drops everything",
    Cause.OVERWRITTEN: "overwritten in place ({node})",
    Cause.FLAT: "{node} let nothing through: the derivative is zero there",
    Cause.ZERO_WEIGHT: "the weight of its term of the loss is 0 ({node})",
    Cause.ZERO_FACTOR: "{node} multiplied the gradient by zeros",
    Cause.CANCELLED: "the gradients that meet at {node} cancel",
    Cause.UNDERFLOW: "too small for {dtype} ({node})",
    Cause.VANISHED: "it vanishes step by step, most of it in {steps}nodes like {node}, until it"
    " is 0",
    Cause.HOOK: "the hook {hook} made it zero",
    Cause.EMPTY: "it has no elements",
    Cause.NON_FINITE: "{what}",
    Cause.FAINT: "it fell {what}",
    Cause.FAINT_MEETING: "the gradients that meet at {node} cancel but for rounding",
    Cause.FAINT_LOSS: "the weight of its term of the loss is next to nothing ({node})",
    Cause.NOT_HELD: "it runs without gradients, and no optimizer holds it",
    Cause.PUT_THERE: "the program puts it there: no pass writes .grad, and an optimizer finds one",
    Cause.DIFFERENCE: "the loss takes differences only: what it adds cancels",
    Cause.LEARNT: "little is left to be learnt: {what}",
    Cause.NO_ELEMENTS: "no element went through it ({node})",
    Cause.SHIFT: "the normalisation behind {node} takes out again what it adds",
}
_OF_MODULES: Final = frozenset({"inner", "decorate_context", "wrapper", "forward", "apply"})
"""Functions of libraries that call others for the user."""
_SEVERAL: Final = (
    "To train it, one of these ways has to stay whole, or the loss needs a term of its own for it;"
    " which of the cuts are meant can't be told."
)
_OF_ENTRIES: Final = (
    "Let the loss take each entry by itself before it sums: cross_entropy on the logits, or squares"
    " of differences."
)
_JOINING: Final = ("CatBackward", "StackBackward")
_OF_PARTS: Final = (
    "Look at what multiplies or selects from it afterwards: a gate, a mask or a weight is all but 0"
    " for this part."
)
_BY_DETACHING: Final = frozenset({Cause.DETACH, Cause.DATA})
_UNKNOWN: Final = {"zero": "{node} put out zeros", "none": "it is not recorded why"}
_BEYOND: Final = (
    "{node} let nothing through: wherever a gradient came, what went in is outside of its bounds"
)
_CONVERSIONS: Final = re.compile(r"__(float|int|bool|complex|index|array)__")
"""What Python calls where a program writes ``float(x)``."""


def unreached(
    parameter: ParameterRow,
    cause: Cause,
    *,
    gradient: GradientWord = "none",
    graph_task: int | None = None,
    what: str = "",
    op: ForwardOpRow | None = None,
    details: tuple[str, ...] = (),
) -> GradientRow:
    """The row of a parameter to which no gradient leads."""
    words = _WORDS.get(cause, _UNKNOWN["none"])
    return _row(
        parameter,
        gradient,
        cause=cause,
        reason=words.format(op="" if op is None else last_name(op), what=what),
        frame=None if op is None else op.frame,
        module=None if op is None else op.module,
        op="" if op is None else op.name,
        graph_task=graph_task,
        details=details,
    )


def reached(parameter: ParameterRow, reason: str = "") -> GradientRow:
    """The row of a parameter to which a backward that has not run yet would bring a gradient."""
    facts = parameter.name, parameter.shape, parameter.dtype
    return GradientRow(*facts, "unknown", None, None, reason)


def not_in_graph(
    parameter: ParameterRow,
    lineage: Lineage,
    known_as: str,
    graph_task: int | None = None,
    *,
    has_inputs: bool = False,
) -> GradientRow:
    """The row of a parameter that requires a gradient and is not in the graph of the loss.

    Args:
        parameter: which.
        lineage: what became of it in the forward.
        known_as: its name there.
        graph_task: whose graph it is.
        has_inputs: whether backward was called with ``inputs=``.
    """
    cut = lineage.cut(known_as)
    if cut is None or cut.cause is Cause.LEFT_TORCH:
        whole = lineage.beside_loss(known_as)
        if whole is not None:
            return _not_the_whole(parameter, graph_task, whole)
    if cut is not None:
        row = _by_cut(parameter, cut, graph_task, lineage.cuts(known_as))
        return _with_new_tensor(row, lineage.made_anew(cut))
    if not lineage.used(known_as):
        return _unused(parameter, lineage, graph_task)
    if lineage.is_attached(known_as):
        cause = Cause.NOT_IN_INPUTS if has_inputs else Cause.UNKNOWN
        return unreached(parameter, cause, graph_task=graph_task)
    last = lineage.last(known_as)
    if last is None:
        return _unused(parameter, lineage, graph_task)
    return unreached(parameter, Cause.NOT_IN_LOSS, graph_task=graph_task, op=last)


def _unused(parameter: ParameterRow, lineage: Lineage, graph_task: int | None) -> GradientRow:
    """The row of a parameter that no recorded function took; one that was not may have."""
    hidden = lineage.unrecorded
    row = unreached(parameter, Cause.UNUSED, graph_task=graph_task, op=hidden)
    if hidden is None:
        return row
    said = "something that was not recorded, as a scripted module, may have used it"
    advice = f"If what {last_name(hidden)}() got there depends on it, look from there on."
    return row._replace(reason=f"{row.reason}; {said}", advice=advice)


def _with_new_tensor(row: GradientRow, anew: ForwardOpRow | None) -> GradientRow:
    """The same, where the line that took numbers out of torch makes a tensor of them."""
    if row.cause is not Cause.LEFT_TORCH or anew is None:
        return row
    reason = f"{row.reason}; {anew.name}() makes a new tensor of the numbers"
    return row._replace(reason=reason, advice=REMEDIES[Cause.NEW_TENSOR])


def _not_the_whole(
    parameter: ParameterRow, graph_task: int | None, whole: ForwardOpRow
) -> GradientRow:
    """The row of a parameter that is in a sum of losses, and not in the one that was chosen."""
    row = unreached(parameter, Cause.NOT_IN_LOSS, graph_task=graph_task, op=whole)
    called = f"backward pass {graph_task}" if graph_task is not None else "backward"
    return row._replace(
        reason=f"it is not in the loss of {called}, but in what {last_name(whole)}() made of that"
        " loss and others",
        advice="Call backward on the whole, if all of it is to be trained.",
    )


def is_bounded(node: str) -> bool:
    """Whether a node is of a function that is flat outside of bounds, and only there."""
    return node.startswith(("Clamp", "Hardtanh"))


def _by_cut(
    parameter: ParameterRow, cut: Cut, graph_task: int | None, cuts: Sequence[Cut]
) -> GradientRow:
    """The row of a parameter that a torch function cut off from the loss."""
    op = cut.op
    called = f"Called as {op.name}({op.arguments or 'tensor'})"
    inside = f", in the module {op.module}" if op.module else ""
    disabled = "" if op.grad_enabled else ", with gradients disabled"
    others = {str(each.frame): each for each in cuts if each.frame != cut.frame}
    row = _row(
        parameter,
        "none",
        cause=cut.cause,
        reason=_cut_by(cut)
        + (_inside(op) if cut.cause in _BY_DETACHING else "")
        + "".join(f"; {_cut_by(each)} on another way, at {at}" for at, each in others.items()),
        frame=cut.frame,
        module=op.module,
        op=op.name,
        graph_task=graph_task,
        details=(f"{called}{inside}{disabled} (function {op.id} of the forward).",),
    )
    return row._replace(advice=_SEVERAL) if others else row


def _cut_by(cut: Cut) -> str:
    name = cut.op.name.rpartition("<locals>.")[2]
    op = _CONVERSIONS.sub(r"\1", last_name(cut.op))
    return _WORDS[cut.cause].format(op=op, name=name, dtype=cut.dtype)


def called_by_user(op: ForwardOpRow) -> str:
    """The function of a library that the user's line called, and that called ``op``, or ``op``."""
    stack = op.stack
    own = max((place for place, frame in enumerate(stack) if not frame.hidden), default=len(stack))
    return next(
        (
            frame.function
            for frame in stack[own + 1 :]
            if not frame.function.startswith("_") and frame.function not in _OF_MODULES
        ),
        last_name(op),
    )


def _inside(op: ForwardOpRow) -> str:
    called = called_by_user(op)
    return "" if called == last_name(op) else f", inside of {called}()"


def practically_zero(
    parameter: ParameterRow,
    graph_task: int,
    norm: float,
    found: Faint,
    shut: float | None = None,
    *,
    is_sum: bool = False,
) -> GradientRow:
    """The row of a parameter whose gradient fell to next to nothing.

    Args:
        parameter: which.
        graph_task: where.
        norm: of its gradient.
        found: where it fell.
        shut: what share of a gradient's norm the node there lets through, where it is an activation
            whose outputs are at the rim.
        is_sum: whether the node is of a softmax that gets the same gradient for all its entries.
    """
    node = found.node
    what = f"at {node.short_name}"
    if found.steps > 1:
        what = f"step by step, most of it in nodes like {node.short_name}"
    if found.steps > 1 and shut is None:
        what += ", and vanishes over them"
    if shut is not None:
        what += f", which is saturated: it lets {percent(shut)} through"
    is_part = found.steps == 1 and node.short_name.startswith(_JOINING)
    if is_part:
        what += ": its part of what was joined there gets next to nothing, others get more"
    if is_sum:
        what += ": what came there is the same for all entries of a row, whose sum is always 1"
    times = f"; {found.steps:,} nodes of this kind made it smaller" if found.steps > 1 else ""
    own = "not known" if parameter.norm is None else f"{parameter.norm:.3g}"
    said = (
        f"Its norm is {norm:.3g}, that of the parameter {own}, the largest on the way from the loss"
        f" {found.before:.3g}{times}."
    )
    row = _row(
        parameter,
        "faint",
        cause=found.cause,
        reason=_WORDS[found.cause].format(node=node.short_name, what=what),
        frame=None if node.is_leaf else node.frame,
        module=node.module,
        graph_task=graph_task,
        node=node.index,
        node_name=node.short_name,
        details=(said,),
    )
    beside = "" if parameter.norm is None else f" beside a parameter of norm {parameter.norm:.3g}"
    advice = REMEDIES[Cause.VANISHED] if found.steps > 1 and found.cause is Cause.FAINT else ""
    advice = _OF_ENTRIES if is_sum else _OF_PARTS if is_part else advice
    return row._replace(norm=norm, beside=beside, advice=advice)


def learnt(what: str) -> str:
    """Why a gradient that is next to nothing is no fault, by what the loss is and was."""
    return _WORDS[Cause.LEARNT].format(what=what)


def stopped(
    parameter: ParameterRow, cause: Cause, node_name: str, frame: Frame | None, module: str | None
) -> GradientRow:
    """The row of a parameter to which a node that has not run yet is sure to give zeros."""
    return _row(
        parameter,
        "zero",
        cause=cause,
        reason=_WORDS[cause].format(node=node_name),
        frame=frame,
        module=module,
        node_name=node_name,
    )


def by_node(
    parameter: ParameterRow,
    gradient: GradientWord,
    graph_task: int,
    end: Vanished | None,
    op: ForwardOpRow | None = None,
    zeros: str = "",
    steps: int = 0,
) -> GradientRow:
    """The row of a parameter whose gradient a node turned into zeros or None.

    Args:
        parameter: which.
        gradient: what arrived.
        graph_task: where.
        end: the node; None: it is not known.
        op: the torch function that made it, where that is known.
        zeros: what the zeros are by which it was multiplied, or why it gives the same always,
            where that is known.
        steps: how many nodes of its kind made it smaller, where it vanished; 0: not known.
    """
    if end is None:
        words = "it is not recorded which node made it so"
        return _row(parameter, gradient, cause=Cause.UNKNOWN, reason=words, graph_task=graph_task)
    node = end.node
    words = _WORDS.get(end.cause, _UNKNOWN[gradient])
    if end.cause is Cause.MASKED and node.short_name.startswith("Embedding"):
        words = "{node} let nothing through: the row of its padding_idx gets no gradient"
    if end.cause is Cause.CANCELLED and end.output >= 0:
        words = "what {node} adds up cancels"
    if end.cause is Cause.MASKED and is_choice(node.short_name):
        words = "{node} let nothing through: it took the values of the other argument throughout"
    if end.cause is Cause.DEAD_ACTIVATION and is_bounded(node.short_name):
        words = _BEYOND
    if end.cause is Cause.NOT_IN_LOSS:
        words = "the loss uses no part of what depends on it ({node})"
    return _row(
        parameter,
        gradient,
        cause=end.cause,
        reason=words.format(
            node=node.short_name,
            dtype=end.dtype,
            hook=end.hook,
            op="" if op is None else last_name(op),
            arguments="" if op is None else op.arguments,
            steps=f"{steps:,} " if steps > 1 else "",
        )
        + zeros,
        frame=None if node.is_leaf else node.frame,
        module=node.module,
        op="" if op is None else op.name,
        graph_task=end.graph_task,
        node=node.index,
        node_name=node.short_name,
        details=end.details,
    )


def _row(
    parameter: ParameterRow,
    gradient: GradientWord,
    *,
    cause: Cause,
    reason: str,
    frame: Frame | None = None,
    module: str | None = None,
    op: str = "",
    graph_task: int | None = None,
    node: int | None = None,
    node_name: str = "",
    details: tuple[str, ...] = (),
) -> GradientRow:
    return GradientRow(
        parameter=parameter.name,
        shape=parameter.shape,
        dtype=parameter.dtype,
        gradient=gradient,
        norm=None,
        cause=cause,
        reason=reason,
        line=None if frame is None else str(frame),
        module=module,
        op=op,
        node=node,
        node_name=node_name,
        graph_task=graph_task,
        details=details,
        frame=frame,
    )
