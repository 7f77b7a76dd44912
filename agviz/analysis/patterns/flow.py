"""Gradients that no node made non-finite: roots, hooks, what ``.grad`` held before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.analysis.measures import LARGEST, counts, magnitude
from agviz.analysis.origins import OriginKind
from agviz.analysis.patterns.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agviz.analysis.evidence import Evidence

_HOOKS: Final[Mapping[str, str]] = {
    "tensor_pre": "tensor hook",
    "pre": "pre-hook",
    "post": "post-hook",
    "post_accumulate_grad": "post-accumulate-grad hook",
}


OLD_GRAD: Final = "non-finite .grad from before"


def root_gradient(evidence: Evidence) -> Finding | None:
    """The caller's own gradient was non-finite."""
    if evidence.kind is not OriginKind.ROOT or evidence.wrong is None:
        return None
    if evidence.blame is not None:
        return None  # it is likely computed of what the forward gave
    return Finding(
        "non-finite gradient given to backward",
        f"the gradient that backward was called with holds {counts(evidence.wrong)}",
        "Look at what computes the argument gradient= (grad_tensors=, grad_outputs=): no node made"
        " it.",
    )


def replaced(evidence: Evidence) -> Finding | None:
    """Somebody changed the gradient in the debugger."""
    if evidence.kind is not OriginKind.REPLACED or evidence.wrong is None:
        return None
    return Finding(
        "gradient changed by hand",
        f"before the node ran, what came to it was replaced by a gradient that holds"
        f" {counts(evidence.wrong)}",
        "Nothing of the program made it: run it without that change.",
    )


def hook(evidence: Evidence) -> Finding | None:
    """A hook replaced a finite gradient by one that is not."""
    if evidence.kind is not OriginKind.HOOK:
        return None
    found = next((hook for hook in evidence.hooks if hook.gave is not None), None)
    if found is None or found.gave is None:
        return None
    return Finding(
        "non-finite gradient from a hook",
        f"the {_HOOKS.get(found.kind, 'hook')} {found.name} was given a finite gradient and gave"
        f" back {counts(found.gave)}",
        f"Look at what {found.name} computes: it may divide by 0, or go beyond what"
        f" {found.gave.dtype} holds.",
    )


def old_grad(evidence: Evidence) -> Finding | None:
    """``.grad`` was non-finite before a finite gradient was added to it."""
    if evidence.kind is not OriginKind.ACCUMULATED or evidence.had_grad is False:
        return None
    if evidence.wrong is None or not evidence.received or evidence.hooks:
        return None  # a hook may have changed .grad itself
    largest = max(magnitude(given.health) for given in evidence.received)
    if largest > LARGEST.get(evidence.wrong.dtype, 0.0) / 2:
        return None  # it may be the sum that overflowed
    held = "the gradient that came is finite, so .grad held that already when it was added"
    op = evidence.written
    if op is not None:
        return Finding(
            OLD_GRAD,
            f"{held}; {op.name}, called at {op.line}, wrote it since the backward pass before",
            f"Look at the arguments of {op.name}: by what it divides, or what it copies.",
        )
    if not evidence.was_bad_before:
        return Finding(
            OLD_GRAD,
            f"{held}, and no backward pass before had such a gradient",
            "Look at what writes to .grad between backward passes: what divides, clips or unscales"
            " gradients.",
        )
    return Finding(
        OLD_GRAD,
        held,
        "Call zero_grad() after a step whose gradients were not finite, also where the step itself"
        " was skipped.",
    )
