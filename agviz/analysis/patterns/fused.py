"""Functions that take a logarithm together with what comes before it, and stay finite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_CHOOSING: Final = frozenset(
    {"Gather", "Index", "IndexSelect", "Narrow", "Select", "Slice", "Split", "Unbind"}
)
"""What takes some of the numbers as they are."""
_LOGITS: Final = "For a loss against targets, binary_cross_entropy_with_logits takes the logits."
_NO: Final = f"Use logsigmoid(-x) in place of the log of 1 - sigmoid(x). {_LOGITS}"
_SOFTMAX: Final = (
    "Use log_softmax(x) in place of log(softmax(x)). For a loss against targets, cross_entropy"
    " takes the logits."
)
_FUSED: Final[Sequence[tuple[tuple[str, ...], str]]] = (
    (("Sigmoid",), f"Use logsigmoid(x) in place of log(sigmoid(x)). {_LOGITS}"),
    (("Rsub", "Sigmoid"), _NO),
    (("Neg", "Sigmoid"), _NO),
    (("Softmax",), _SOFTMAX),
    (("Sum", "Exp"), "Use logsumexp(x) in place of log(exp(x).sum())."),
)


def fused(behind: Sequence[str]) -> str:
    """What to call in place of the logarithm of what these nodes made; empty: nothing is known.

    Args:
        behind: names of the nodes towards the leaves, without ``Backward0``, the nearest first.
    """
    names = [name for name in behind if name not in _CHOOSING]
    return next(
        (remedy for made_by, remedy in _FUSED if tuple(names[: len(made_by)]) == made_by), ""
    )
