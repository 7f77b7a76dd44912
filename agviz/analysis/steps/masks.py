"""Whether the text of a program makes a factor of 0 and 1: a comparison, a triangle, pairs.

A name is followed to all that is assigned to it in its function or module, an attribute to all
that is assigned to it or registered as a buffer, an argument to what calls give for it. What is
drawn where the factor is used is a noise that is meant, and what is compared with itself a
threshold.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import called_name, targets_of
from agviz.analysis.steps.values import Values, all_given

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame

_MOST_DEEP: Final = 12
_COMPARING: Final = frozenset(
    {"bool", "eq", "ge", "greater", "gt", "isin", "le", "less", "logical_and", "logical_not"}
    | {"logical_or", "lt", "ne", "not_equal"}
)
_KEEPING: Final = frozenset(
    {"clone", "contiguous", "cpu", "cuda", "detach", "double", "expand", "expand_as", "float"}
    | {"half", "int", "long", "permute", "repeat", "reshape", "squeeze", "t", "to", "transpose"}
    | {"tril", "triu", "type", "type_as", "unsqueeze", "view"}
)
"""Functions that leave 0 and 1 what they are."""
_TRIANGLES: Final = frozenset({"tril", "triu"})
_ONES: Final = frozenset({"new_ones", "ones", "ones_like"})
_BLANK: Final = _ONES | {"new_zeros", "zeros", "zeros_like"}
_JOINING: Final = frozenset({"cat", "stack"})
_TURNED: Final = frozenset({"H", "T", "data", "mT"})
_DRAWING: Final = frozenset({"bernoulli", "bernoulli_", "dropout", "rand", "rand_like", "randn"})
_MULTIPLYING: Final = frozenset({"mul", "mul_", "multiply", "multiply_"})


class MaskText:
    """Asked for lines of a program.

    Args:
        trace: holds the text of its files.
    """

    def __init__(self, trace: Trace) -> None:
        self._values = Values(trace)
        self._nodes = self._values.nodes
        self._where = ("", "")
        self._met: set[str] = set()
        """Names that the factor at hand was made of."""

    def factor_at(self, frame: Frame) -> str:
        """The mask that a line multiplies something by, as it is written; empty: none is seen."""
        self._where = (frame.file, frame.function)
        for function, node in self._nodes.get(frame.file, ()):
            if function != frame.function or not _is_on(node, frame.line):
                continue
            for factor, other in _factors(node):
                self._met = {each.id for each in ast.walk(factor) if isinstance(each, ast.Name)}
                if self._is_mask(factor, *self._where, frozenset()):
                    if isinstance(other, ast.Name) and other.id in self._met:
                        continue
                    return ast.unparse(factor)
        return ""

    def is_given_arange(self, frame: Frame) -> bool:
        """Whether a line gives ``torch.arange(n)``, as it is, to a function."""
        return any(
            function == frame.function
            and isinstance(node, ast.Call)
            and _is_on(node, frame.line)
            and any(self._is_arange(each, frame) for each in all_given(node))
            for function, node in self._nodes.get(frame.file, ())
        )

    def _is_arange(self, value: ast.expr, frame: Frame) -> bool:
        while isinstance(value, ast.Subscript):
            value = value.value
        if isinstance(value, ast.Call):
            is_kept = called_name(value) in _KEEPING and isinstance(value.func, ast.Attribute)
            if is_kept and isinstance(value.func, ast.Attribute):
                return self._is_arange(value.func.value, frame)
            return called_name(value) in {"arange", "range"}
        if not isinstance(value, ast.Name | ast.Attribute):
            return False
        where = (ast.unparse(value), frame.file, frame.function)
        values = [*self._values.assigned(*where), *self._values.arguments(*where)]
        return any(
            isinstance(each, ast.Call) and self._is_arange(each, frame) for each, _, _ in values
        )

    def _is_mask(self, value: ast.expr, file: str, function: str, behind: frozenset[str]) -> bool:
        is_drawn = (file, function) == self._where and _draws(value)
        if is_drawn or len(behind) > _MOST_DEEP:
            return False
        inner: list[ast.expr] = []
        match value:
            case ast.Compare(ops=ops):
                return not any(isinstance(each, ast.Is | ast.IsNot | ast.In) for each in ops)
            case ast.Call():
                return self._makes_mask(value, file, function, behind)
            case (
                ast.UnaryOp(op=ast.Invert(), operand=one)
                | ast.Subscript(value=one)
                | ast.BinOp(left=ast.Constant(value=1 | 1.0), op=ast.Sub(), right=one)
            ):
                inner = [one]
            case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr() | ast.Mult(), right=right):
                inner = [left, right]
            case ast.Attribute(value=one, attr=attr) if attr in _TURNED:
                inner = [one]
            case ast.Name() | ast.Attribute():
                return self._is_named_mask(ast.unparse(value), file, function, behind)
        return bool(inner) and all(self._is_mask(each, file, function, behind) for each in inner)

    def _makes_mask(self, call: ast.Call, file: str, function: str, behind: frozenset[str]) -> bool:
        name, inner = called_name(call), _first(call)
        if name in _COMPARING or name == "eye":
            return True
        if inner is None:
            return False
        if name in _JOINING:
            parts = inner.elts if isinstance(inner, ast.List | ast.Tuple) else []
            return bool(parts) and all(
                self._is_mask(each, file, function, behind) for each in parts
            )
        if name in _TRIANGLES and isinstance(inner, ast.Call) and called_name(inner) in _ONES:
            return True
        return name in _KEEPING and self._is_mask(inner, file, function, behind)

    def _is_named_mask(self, name: str, file: str, function: str, behind: frozenset[str]) -> bool:
        if name in behind:
            return True
        values = list(self._values.assigned(name, file, function))
        self._met |= {each.id for value, _, _ in values for each in _names(value)}
        own = [one for one in values if name not in {each.id for each in _names(one[0])}]
        inside = behind | {name}
        found = [
            self._is_mask(value, where, made, inside) or self._is_filled(name, value, where, made)
            for value, where, made in values
        ]
        if not values:
            given = list(self._values.arguments(name, file, function))
            found = [self._is_mask(value, where, made, inside) for value, where, made in given]
            is_any = function == "forward"  # by its text, a call may be one of another module
            return any(found) if is_any else bool(found) and all(found)
        if not own:
            given = list(self._values.arguments(name, file, function))
            found += [self._is_mask(value, where, made, inside) for value, where, made in given]
            return bool(given) and all(found)
        return all(found)

    def _is_filled(self, name: str, value: ast.expr, file: str, function: str) -> bool:
        """Whether what is made of zeros or ones gets nothing but 0 and 1 by its indices."""
        if not isinstance(value, ast.Call) or called_name(value) not in _BLANK:
            return False
        put = [
            node.value
            for where, node in self._nodes[file]
            if where == function and isinstance(node, ast.Assign | ast.AugAssign)
            for target in targets_of(node)
            if isinstance(target, ast.Subscript) and ast.unparse(target.value) == name
        ]
        return bool(put) and all(
            isinstance(each, ast.Constant) and each.value in {0, 1} for each in put
        )


def _is_on(node: ast.AST, line: int) -> bool:
    if not isinstance(node, ast.expr | ast.stmt):
        return False
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _factors(node: ast.AST) -> Sequence[tuple[ast.expr, ast.expr]]:
    """Both factors of a product, each with the other one; empty: it is none."""
    match node:
        case ast.BinOp(left=one, op=ast.Mult(), right=other):
            return (other, one), (one, other)
        case ast.AugAssign(target=one, op=ast.Mult(), value=other):
            return ((other, one),)
        case ast.Call() if called_name(node) in _MULTIPLYING:
            given = all_given(node)
            return ((given[1], given[0]), (given[0], given[1])) if len(given) == 2 else ()
    return ()


def _first(call: ast.Call) -> ast.expr | None:
    return next(iter(all_given(call)), None)


def _draws(value: ast.expr) -> bool:
    return any(
        isinstance(each, ast.Call) and called_name(each) in _DRAWING for each in ast.walk(value)
    )


def _names(value: ast.expr) -> Iterator[ast.Name]:
    return (each for each in ast.walk(value) if isinstance(each, ast.Name))
