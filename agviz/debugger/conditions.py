"""Conditions of breakpoints: predicates over the health of a gradient, like ``norm > 1e3``.

They are read with Python's own parser and worked out here, node by node; nothing is ever compiled
or evaluated by Python. Only numbers, texts, tuples and the names in :data:`NAMES` can be in one.
"""

from __future__ import annotations

import ast
import math
import operator
from typing import TYPE_CHECKING, Any, Final

from agviz.errors import AgvizError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agviz.measure.values import Health

NAMES: Final = (
    *("nan", "posinf", "neginf", "inf", "zero", "numbers", "numel", "nbytes"),
    *("min", "max", "mean", "norm", "shape", "ndim", "dtype", "device", "layout", "slot"),
)
"""What a condition may speak of: counts of special values (``inf`` is both infinities), what
:class:`~agviz.measure.values.Health` has else, and the input or output number."""
LONGEST: Final = 500
"""Characters of a condition."""
_DEEPEST: Final = 30
_LARGEST: Final = 10**30
"""Whole numbers stay below this."""

_ARITHMETIC: Final[dict[type[ast.operator], Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_COMPARISONS: Final[dict[type[ast.cmpop], Callable[[Any, Any], Any]]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}
_UNARY: Final[dict[type[ast.unaryop], Callable[[Any], Any]]] = {
    ast.Not: operator.not_,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_CONSTANTS: Final = (bool, int, float, str)


class ConditionError(AgvizError):
    """A text is no condition; the message says why in one sentence."""


class _NotKnownError(Exception):
    """The gradient has no such number, as the minimum of one that is all NaN."""


class Condition:
    """A condition that was read.

    Args:
        text: as the user writes it.

    Raises:
        ConditionError: it is none.
    """

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        if not self.text:
            raise ConditionError("a condition can't be empty; write one like norm > 1e3")
        if len(self.text) > LONGEST:
            raise ConditionError(f"a condition has at most {LONGEST} characters")
        try:
            self._tree = ast.parse(self.text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise ConditionError(
                f"{self.text!r} is no condition; write one like norm > 1e3 or shape[0] == 7"
            ) from None
        _check(self._tree, 0, self.text)

    def __repr__(self) -> str:
        return f"Condition({self.text!r})"

    def holds(self, facts: Mapping[str, Any]) -> bool:
        """Whether it is true of a gradient; where a number in it is not known, it is not.

        Args:
            facts: the values of :data:`NAMES`, see :func:`facts_of`; None: not known.
        """
        try:
            return bool(_value(self._tree, facts))
        except (_NotKnownError, ArithmeticError, TypeError, ValueError, IndexError):
            return False


def facts_of(health: Health, slot: int) -> dict[str, Any]:
    """What a condition may ask of a gradient."""
    known = health.unknown == ""
    counts = {
        "nan": health.nan,
        "posinf": health.posinf,
        "neginf": health.neginf,
        "inf": health.posinf + health.neginf,
        "zero": health.zero,
        "numbers": health.numbers,
        "min": health.min,
        "max": health.max,
        "mean": health.mean,
        "norm": health.norm,
    }
    return {name: value if known else None for name, value in counts.items()} | {
        "numel": health.numel,
        "nbytes": health.nbytes,
        "shape": health.shape,
        "ndim": None if health.shape is None else len(health.shape),
        "dtype": health.dtype,
        "device": health.device,
        "layout": health.layout,
        "slot": slot,
    }


def _check(node: ast.expr, depth: int, text: str) -> None:  # noqa: C901, PLR0912 - one case for each kind
    """Refuse whatever is not meant, before anything is worked out."""
    if depth > _DEEPEST:
        raise ConditionError(f"a condition is nested at most {_DEEPEST} deep")
    match node:
        case ast.Constant(value=value) if type(value) in _CONSTANTS:
            if type(value) is int and abs(value) >= _LARGEST:
                raise ConditionError("a number in the condition is too large")
        case ast.Name(id=name):
            if name not in NAMES:
                raise ConditionError(f"{name!r} is not known; a condition knows {', '.join(NAMES)}")
        case ast.UnaryOp() if type(node.op) in _UNARY:
            _check(node.operand, depth + 1, text)
        case ast.BinOp() if type(node.op) in _ARITHMETIC:
            _check(node.left, depth + 1, text)
            _check(node.right, depth + 1, text)
        case ast.BoolOp(values=values) | ast.Tuple(elts=values) | ast.List(elts=values):
            for part in values:
                _check(part, depth + 1, text)
        case ast.Compare() if all(type(op) in _COMPARISONS for op in node.ops):
            for part in (node.left, *node.comparators):
                _check(part, depth + 1, text)
        case ast.Subscript(value=ast.Name(id="shape"), slice=index) if not isinstance(
            index, ast.Slice
        ):
            _check(index, depth + 1, text)
        case ast.Call(func=ast.Name(id="abs"), args=[argument], keywords=[]):
            _check(argument, depth + 1, text)
        case _:
            wrong = ast.get_source_segment(text, node)
            raise ConditionError(
                f"{wrong!r} can't stand in a condition; it has comparisons, and, or,"
                " not, + - * / // %, abs(), shape[i], numbers and texts"
            )


def _value(node: ast.expr, facts: Mapping[str, Any]) -> Any:  # noqa: PLR0911 - one for each kind
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return _known(facts, name)
        case ast.UnaryOp(op=op, operand=operand):
            return _UNARY[type(op)](_value(operand, facts))
        case ast.BinOp(left=left, op=op, right=right):
            return _computed(op, _value(left, facts), _value(right, facts))
        case ast.BoolOp(op=op, values=values):
            wanted = isinstance(op, ast.Or)
            return any(bool(_value(v, facts)) is wanted for v in values) is wanted
        case ast.Tuple(elts=parts) | ast.List(elts=parts):
            return tuple(_value(part, facts) for part in parts)
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            values = [_value(value, facts) for value in (left, *comparators)]
            pairs = zip(ops, values, values[1:], strict=False)
            return all(_COMPARISONS[type(op)](a, b) for op, a, b in pairs)
        case ast.Subscript(slice=index):
            return _known(facts, "shape")[_value(index, facts)]
        case ast.Call(args=[argument]):
            return abs(_value(argument, facts))
    raise TypeError(node)


def _known(facts: Mapping[str, Any], name: str) -> Any:
    value = facts.get(name)
    if value is None:
        raise _NotKnownError(name)
    return value


def _computed(op: ast.operator, left: Any, right: Any) -> float:
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        raise TypeError("only numbers are computed with")
    result = _ARITHMETIC[type(op)](left, right)
    if isinstance(result, int) and abs(result) >= _LARGEST:
        return math.inf if result > 0 else -math.inf
    return float(result) if isinstance(result, float) else int(result)
