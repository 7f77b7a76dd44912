"""Similarities of rows whose columns were normalised.

Note [Rows that have no length]
``F.normalize(z, dim=0)`` of (64, 16) gives columns of length 1. Correlations of features
(``z.T @ z``) sum along these. A product that sums along the rows (``z @ z.T``) of what was
normalised, both of it, compares rows: that is told where a softmax of the kind that contrastive
losses have takes it. A weight is left alone, as are square matrices, which may be adjacencies.
"""

from __future__ import annotations

import re
import weakref
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from agviz.check.saved import made_by
from agviz.record.arguments import tensors_of

if TYPE_CHECKING:
    from collections.abc import Mapping, MutableMapping, Sequence

_NORMS: Final = frozenset({"norm", "vector_norm"})
_TURNING: Final = frozenset({"T", "mT", "swapaxes", "t", "transpose"})
_KEEPING: Final = frozenset({"cat", "clamp", "clamp_min", "contiguous", "float", "to"})
_NUMBER_BY_NUMBER: Final = frozenset({"add", "div", "masked_fill", "mul", "sub", "truediv"})
_PICKING: Final = frozenset({"getitem", "masked_select", "reshape", "view"})
_ENDING: Final = frozenset({"cross_entropy", "exp", "log_softmax", "logsumexp"})
_EQUATIONS: Final = {"linear": "ij,kj->ik", "matmul": "ij,jk->ik", "mm": "ij,jk->ik"}
"""Of products of matrices."""
_EQUATION: Final = re.compile(r"(\w\w),(\w\w)->(\w\w)")
_MOST: Final = 1_000
"""Products that are kept: each pass makes them again."""


class Normalised(NamedTuple):
    """What was normalised, or only its norm."""

    captured: Any
    """The stack of the call."""
    shape: tuple[int, ...]
    dim: int
    """Along which it was normalised."""
    axis: int
    """Where that is by now."""
    of: weakref.ref[Tensor] | None = None
    """Of what this is the norm."""


class RowSimilarity(NamedTuple):
    """A product along the rows of what has columns of length 1."""

    normalised: Normalised
    captured: Any
    """The stack of the product."""
    used: Any = None
    """The stack of what makes a loss of it."""


class Similarities:
    """Follows what is normalised to products, and these to losses."""

    def __init__(self) -> None:
        self.found: list[RowSimilarity] = []
        self._normalised: MutableMapping[Tensor, Normalised] = WeakTensorKeyDictionary()
        self._products: MutableMapping[Tensor, RowSimilarity] = WeakTensorKeyDictionary()

    def called(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, captured: Any
    ) -> None:
        """A torch function has given ``result``."""
        if not isinstance(result, Tensor) or not result.requires_grad:
            return
        last = name.removesuffix(".__get__").rpartition(".")[2].strip("_")
        given = [tensor for _, tensor in tensors_of(tuple(args), dict(kwargs))]
        if last == "normalize" or last in _NORMS:
            self._measured(last, args, kwargs, result, captured)
        known = [self._products[each] for each in given if each in self._products]
        if known and last in _ENDING:
            if len(self.found) < _MOST:
                self.found.append(known[0]._replace(used=captured))
        elif known and last in _TURNING | _KEEPING | _NUMBER_BY_NUMBER | _PICKING:
            self._products[result] = known[0]
        units = [self._normalised[each] for each in given if each in self._normalised]
        if units and last in _EQUATIONS.keys() | {"einsum"}:
            self._multiplied(last, args, given, result, captured)
        elif units:
            self._follow(last, given, units, result)

    def _measured(
        self, last: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Tensor, stack: Any
    ) -> None:
        tensor = args[0] if args else kwargs.get("input")
        p, dim = (*args[1:3], *(None, None))[:2]
        p = kwargs.get("p", kwargs.get("ord", p))
        dim = kwargs.get("dim", 1 if dim is None and last == "normalize" else dim)
        if isinstance(tensor, Tensor) and tensor.dim() == 2 and p in {None, 2, "fro"}:
            shape = tuple(tensor.shape)
            if type(dim) is int and made_by(tensor) is not None and shape[0] != shape[1]:
                of = weakref.ref(tensor) if last in _NORMS else None
                self._normalised[result] = Normalised(stack, shape, dim % 2, dim % 2, of)

    def _follow(
        self, last: str, given: list[Tensor], units: list[Normalised], result: Tensor
    ) -> None:
        unit, is_norm = units[0], units[0].of is not None
        others = [each for each in given if each not in self._normalised]
        if last in {"div", "truediv"} and is_norm and others == given[:1]:
            if unit.of is not None and unit.of() is others[0]:
                self._normalised[result] = unit._replace(of=None)
        elif last in _TURNING and not is_norm:
            self._normalised[result] = unit._replace(axis=1 - unit.axis)
        elif last in _KEEPING | _NUMBER_BY_NUMBER and all(each.numel() == 1 for each in others):
            self._normalised[result] = unit

    def _multiplied(
        self, last: str, args: Sequence[Any], given: list[Tensor], result: Tensor, captured: Any
    ) -> None:
        written = str(args[0]).replace(" ", "") if last == "einsum" else _EQUATIONS[last]
        equation = _EQUATION.fullmatch(written)
        units = [self._normalised[each] for each in given if each in self._normalised]
        if (
            equation is None
            or not len(given) == len(units) == 2
            or any(each.of is not None for each in units)
        ):
            return
        for letters, unit in zip(equation.groups()[:2], units, strict=True):
            if unit.dim == 0 and letters[unit.axis] in equation[3]:
                self._products[result] = RowSimilarity(unit, captured)
