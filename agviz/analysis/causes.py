"""Why a parameter has no gradient, or none of use: the causes that are distinguished."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Cause(StrEnum):
    """Why a gradient is None, zero, or of no use."""

    FROZEN = "frozen"
    """The parameter does not require a gradient."""
    UNUSED = "unused"
    """No torch function took it in the forward."""
    NOT_IN_LOSS = "not_in_loss"
    """It was used, but nothing that became of it is part of the loss."""
    NOT_REACHED = "not_reached"
    """The graph of the loss does not hold it; more is known with ``check_forward`` only."""
    DETACH = "detach"
    DATA = "data"
    """``Tensor.data``."""
    COPIED = "copied"
    """``copy.deepcopy``, which gives a leaf of its own."""
    NO_GRAD = "no_grad"
    SAMPLED = "sampled"
    """A distribution's ``sample``, which runs without gradients."""
    INFERENCE_MODE = "inference_mode"
    INTEGER = "integer"
    """What came out were integers or truth values: argmax, a comparison, ``long()``."""
    NEW_TENSOR = "new_tensor"
    """Its values were copied into a new tensor: ``torch.tensor``."""
    LEFT_TORCH = "left_torch"
    """Its values went to Python or numpy: ``item()``, ``tolist()``, ``numpy()``."""
    NOT_DIFFERENTIABLE = "not_differentiable"
    """A function without a derivative for what it was given."""
    UNSEEN = "unseen"
    """Something that was not recorded made a new tensor of it: ``nn.Parameter``, another thread."""
    COLLECTIVE = "collective"
    """What torch.distributed communicates has no graph."""
    CHECKPOINT = "checkpoint"
    """A reentrant checkpoint none of whose inputs required a gradient."""
    NOT_IN_INPUTS = "not_in_inputs"
    """backward or grad was called with ``inputs=``, without it."""
    FAILED = "failed"
    """The backward pass ended before it came there."""
    IN_NODE = "in_node"
    """The backward pass ended in its AccumulateGrad node, or in a hook there."""
    RETURNED_NONE = "returned_none"
    """A custom Function returned None for it."""
    ROOT = "root"
    """The gradient that backward was given was zero."""
    DEAD_ACTIVATION = "dead_activation"
    """An activation all of whose inputs lie where it is flat."""
    MASKED = "masked"
    """A mask, ``where`` or choice that let nothing through."""
    DROPPED = "dropped"
    """A dropout dropped everything."""
    OVERWRITTEN = "overwritten"
    """What depended on it was overwritten in place."""
    FLAT = "flat"
    """A function whose derivative is zero there: round, sign, softmax of one element."""
    ZERO_WEIGHT = "zero_weight"
    """Its term of the loss was multiplied by zero."""
    ZERO_FACTOR = "zero_factor"
    """It was multiplied by a tensor of zeros."""
    CANCELLED = "cancelled"
    """Gradients of several paths came to zero together."""
    UNDERFLOW = "underflow"
    """The gradient was too small for its dtype."""
    VANISHED = "vanished"
    """It shrank at many nodes until it was too small for its dtype."""
    HOOK = "hook"
    """A hook replaced it by zeros."""
    EMPTY = "empty"
    """It has no elements."""
    NON_FINITE = "non_finite"
    """It is there, but NaN or infinite."""
    FAINT = "faint"
    """It is practically zero: it fell to next to nothing on its way from the loss."""
    FAINT_MEETING = "faint_meeting"
    """The same, where gradients that meet cancel but for rounding."""
    FAINT_LOSS = "faint_loss"
    """It is practically zero, because its term of the loss is."""
    SHIFT = "shift"
    """It is practically zero, because what it adds to is normalised afterwards."""
    NOT_HELD = "not_held"
    """It ran without gradients, and optimizers stepped without it: a target or teacher network."""
    PUT_THERE = "put_there"
    """Optimizers find a gradient that the program puts there: no pass writes ``.grad``."""
    DIFFERENCE = "difference"
    """What it adds cancels in the loss, which takes differences only."""
    LEARNT = "learnt"
    """It had a gradient once; what is left of the loss is next to nothing."""
    NO_ELEMENTS = "no_elements"
    """What depended on it had no elements in these passes: nothing was routed there."""
    UNKNOWN = "unknown"


REMEDIES: Final[dict[Cause, str]] = {
    Cause.FROZEN: "Set requires_grad_(True) before the forward if it is to be trained.",
    Cause.UNUSED: "Call the module that owns it in the forward, or remove it.",
    Cause.NOT_IN_LOSS: "Add what was computed from it to the loss, or leave it out.",
    Cause.DETACH: "Remove the detach, or detach only what the loss does not train.",
    Cause.DATA: "Use the tensor itself instead of its .data.",
    Cause.COPIED: "Call the module itself in the forward: gradients go to the copy, not to what "
    "was copied.",
    Cause.NO_GRAD: "Run that part outside of torch.no_grad() if it is to be trained.",
    Cause.SAMPLED: "Use rsample(), the reparametrised sample, where the distribution has one; "
    "else a score-function estimator (log_prob).",
    Cause.INFERENCE_MODE: "Run that part outside of torch.inference_mode() if it is to be trained.",
    Cause.INTEGER: "Use a differentiable relaxation there (softmax, sigmoid, Gumbel-softmax, a "
    "straight-through estimator).",
    Cause.NEW_TENSOR: "Use torch.stack or torch.cat, which keep the graph.",
    Cause.LEFT_TORCH: "Keep it a tensor on the way to the loss: numbers of Python and arrays of "
    "numpy carry no gradient.",
    Cause.NOT_DIFFERENTIABLE: "Pass it as an argument of its own, to a function that has a "
    "derivative for it.",
    Cause.UNSEEN: "Look for torch.nn.Parameter(...), a detach or no_grad behind that line, as on "
    "another thread.",
    Cause.COLLECTIVE: "Use its namesake in torch.distributed.nn.functional, which has a graph; or "
    "put this rank's own tensor among what came of the others.",
    Cause.CHECKPOINT: "Use checkpoint(..., use_reentrant=False).",
    Cause.NOT_IN_INPUTS: "Add it to inputs=, or leave inputs= out.",
    Cause.RETURNED_NONE: "Return its gradient from backward.",
    Cause.DEAD_ACTIVATION: "Check what goes in: data, initialisation, a step that was too large; "
    "or use an activation with a slope on both sides.",
    Cause.MASKED: "Check the mask: for this batch it selects nothing of what depends on it.",
    Cause.DROPPED: "Its p is the probability to drop an element, not to keep it: take less than 1.",
    Cause.OVERWRITTEN: "Write into another tensor, or only where nothing that matters stands.",
    Cause.FLAT: "Use a function with a slope there, or a straight-through estimator.",
    Cause.ZERO_WEIGHT: "Give the term of the loss a weight if it is to train it.",
    Cause.ZERO_FACTOR: "It learns once the other factor is no longer zero; if both are parameters"
    " of zeros, start one of them from other values.",
    Cause.UNDERFLOW: "Scale the loss (torch.amp.GradScaler), by more if it is scaled already, or "
    "keep that part in float32.",
    Cause.VANISHED: "Each takes a factor below 1: shorten the way (skip connections, gates, a "
    "truncated sequence), or normalise what each step gives.",
    Cause.HOOK: "Check what the hook returns.",
    Cause.FAINT: "Look at what is multiplied or summed there: a factor is next to nothing, or "
    "terms cancel; of the latter, Adam and its like follow rounding noise.",
    Cause.FAINT_MEETING: "Look at the terms of the forward that cancel there; Adam and its like "
    "follow rounding noise.",
    Cause.FAINT_LOSS: "Give the term of the loss a weight if it is to train it.",
    Cause.SHIFT: "Nothing is lost by leaving it out (bias=False).",
    Cause.NO_ELEMENTS: "Look at what chooses (a router, an index, a split) if such batches are to "
    "train it.",
    Cause.NON_FINITE: "Ask agviz explain where that began.",
}
"""What to do about it, in a sentence, where there is anything to do."""


def is_choice(node: str) -> bool:
    """Whether a node gives each gradient to the smaller, or the larger, of two arguments alone."""
    return node.startswith(("Minimum", "Maximum"))
