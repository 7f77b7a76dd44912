"""How a loss weighs what it is made of: the node that averages or sums, behind scalar factors.

Note [What counts as a sum]
``(each * weights).sum()`` may be a mean, by its weights. So a sum or a mean is called one only
where nothing is multiplied or divided between it and the output of the module.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from torch import Tensor

from agviz.check.ranks.notes import MEAN, SUM
from agviz.measure.saved_tensors import raw_saved

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

_SCALAR: Final = frozenset({"MulBackward0", "DivBackward0", "NegBackward0", "ToCopyBackward0"})
_UNWEIGHTED: Final = frozenset(
    {
        *("AbsBackward0", "PowBackward0", "SquareBackward0", "NegBackward0", "LogBackward0"),
        *("SubBackward0", "LogSoftmaxBackward0", "GatherBackward0", "SqueezeBackward0"),
        *("SqueezeBackward1", "UnsqueezeBackward0", "ViewBackward0", "ReshapeAliasBackward0"),
    }
)
"""Between a sum and the output of the module: no factors of samples are in them."""
_NONE, _MEAN, _SUM = 0, 1, 2
"""Of a loss function's ``reduction``, as its node has it."""
_LONGEST: Final = 32


@dataclass(frozen=True)
class Reducing:
    """The node that makes a number of many."""

    node: Any
    kind: str
    count: int


def reducing(roots: Sequence[Any], outputs: Collection[Any]) -> Reducing | None:
    """The node that reduces a loss to a scalar; None: it can't be told.

    Args:
        roots: what backward is called on.
        outputs: the nodes of outputs of modules.
    """
    if len(roots) != 1 or not isinstance(roots[0], Tensor) or roots[0].numel() != 1:
        return None
    node: Any = roots[0].grad_fn
    for _ in range(_LONGEST):
        if node is None:
            return None
        found = _reduced(node, outputs)
        if found is not None or node.name() not in _SCALAR:
            return found
        before = [each for each, _ in node.next_functions if each is not None]
        node = before[0] if len(before) == 1 else None
    return None


def _reduced(node: Any, outputs: Collection[Any]) -> Reducing | None:
    name = node.name()
    reduction = getattr(node, "_saved_reduction", None)
    if reduction in {_MEAN, _SUM}:
        count = _weight(node) if name.startswith("NllLoss") else _numel(node.next_functions[0][0])
        kind = MEAN if reduction == _MEAN else SUM
    elif name == "MeanBackward0":
        count, kind = int(node._saved_self_sym_numel), MEAN
    elif name == "SumBackward0":
        count, kind = math.prod(map(int, node._saved_self_sym_sizes)), SUM
    else:
        return None
    if count is None or not _is_unweighted(node.next_functions[0][0], outputs):
        return None
    return Reducing(node, kind, count)


def _is_unweighted(node: Any, outputs: Collection[Any]) -> bool:
    """Note [What counts as a sum]."""
    for _ in range(_LONGEST):
        if node is None:
            return False
        if node in outputs:
            return True
        is_loss = getattr(node, "_saved_reduction", None) == _NONE
        if not is_loss and node.name() not in _UNWEIGHTED:
            return False
        before = [each for each, _ in node.next_functions if each is not None]
        node = before[0] if len(before) == 1 else None
    return False


def _numel(node: Any) -> int | None:
    """Of what a node gave; None: it is not known, as of a leaf."""
    metadata: Sequence[Any] = getattr(node, "_input_metadata", ())
    return math.prod(metadata[0].shape) if len(metadata) == 1 else None


def _weight(node: Any) -> int | None:
    """How many targets a ``nll_loss`` has counted; None: classes or a hook weigh them."""
    try:
        if raw_saved(node, "_raw_saved_weight").data is not None:
            return None
        total = raw_saved(node, "_raw_saved_total_weight")
        if total.unpack_hook is not None or not isinstance(total.data, Tensor):
            return None
    except RuntimeError:  # released
        return None
    return round(float(total.data.item())) or None
