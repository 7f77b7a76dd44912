"""Expressions over gradients and parameters: ``norm > 1e3``, ``encoder.0.weight.grad.norm()``.

Conditions, watches, log points and data breakpoints are written in this one language. Python's own
parser reads a text; what this module does not know is refused there, and the rest is worked out
here, part by part: nothing is ever compiled or evaluated by Python, and no attribute is looked up
by a name that somebody wrote. Needs no torch: a :class:`Scope` has the values.

Note [Names of parameters]
A parameter goes by the name that agviz shows, which need not be Python: ``0.weight``,
``encoder.layers.3.bias``, ``Net#2.weight``. Before Python reads a text, a part of a name that
begins with a digit gets a letter in front, and ``#`` becomes one (:func:`_readable`). What can't be
written even so, as ``block-1.weight``, goes into ``parameter("block-1.weight")``.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from agviz.errors import AgvizError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agviz.measure.values import Health

NAMES: Final = (
    *("nan", "posinf", "neginf", "inf", "zero", "numbers", "numel", "nbytes"),
    *("min", "max", "mean", "norm", "shape", "ndim", "dtype", "device", "layout", "slot"),
)
"""What an expression may say of the gradient at hand: counts of special values (``inf`` is both
infinities), what :class:`~agviz.measure.values.Health` has else, and the input or output number."""
SLOTS: Final = ("input", "output")
"""Gradients of the stopped node, by number: ``input[0]``."""
TENSOR_METHODS: Final = ("abs", "isnan", "isinf", "isfinite")
"""Methods of a tensor that give a tensor."""
NUMBER_METHODS: Final = (
    *("norm", "min", "max", "mean", "sum", "any", "all", "numel", "item"),
    "count_nonzero",
)
"""Methods of a tensor that give a number, as in torch: where an element is NaN, so is the norm."""
FACTS: Final = ("shape", "ndim", "dtype", "device")
"""What a tensor says of itself."""
LONGEST: Final = 500
"""Characters of an expression."""
_DEEPEST: Final = 30
_LARGEST: Final = 10**30
"""Whole numbers stay below this."""
_DIGIT, _HASH = "ʘ", "ǁ"
"""Letters that Python takes in a name; Note [Names of parameters]."""

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
_TOKENS: Final = re.compile(
    r"""(?P<text>'[^'\\]*'|"[^"\\]*")"""
    r"|(?P<number>(?<![\w.])\d[\d_]*(?:\.\d*)?(?:[eE][+-]?\d+)?(?![\w.#]))"
    r"|(?P<name>[\w#]+(?:\.[\w#]+)*)"
)
_LANGUAGE: Final = (
    "numbers and texts, comparisons, and, or, not, + - * / // %, abs(), shape[0], what agviz"
    " measured of the gradient (norm), and of parameters and of input[0] and output[0] what torch"
    " says: fc.weight.grad.norm(), .max(), .isnan().any(), is None"
)


class ExpressionError(AgvizError):
    """A text is no expression of this language; the message says why in one sentence."""


class UnknownValueError(AgvizError):
    """An expression has no value here; the message says why in one sentence."""


class Scope(Protocol):
    """Where an expression is worked out; a method raises UnknownValueError where there is none."""

    def fact(self, name: str) -> Any:
        """One of :data:`NAMES`, of the gradient at hand."""

    def parameter(self, name: str) -> Any:
        """A parameter by its name."""

    def slot(self, what: str, number: int) -> Any:
        """A gradient of the stopped node, or None; ``what`` is one of :data:`SLOTS`."""

    def grad(self, tensor: Any) -> Any:
        """``.grad`` of a parameter, or None."""

    def of(self, tensor: Any, what: str) -> Any:
        """A method or fact of a tensor that is named in this module."""


class Facts:
    """The scope of a recorded gradient: it was measured, and there is no tensor.

    Args:
        known: by :data:`NAMES`; None: that is not known.
    """

    def __init__(self, known: Mapping[str, Any]) -> None:
        self._known = known

    def fact(self, name: str) -> Any:
        """What was measured."""
        value = self._known.get(name)
        if value is None:
            raise UnknownValueError(f"{name} of this gradient is not known")
        return value

    def parameter(self, name: str) -> Any:
        """There is none."""
        raise UnknownValueError(f"{name} has a value only where a program is stopped")

    def slot(self, what: str, number: int) -> Any:
        """There is none."""
        raise UnknownValueError(f"{what}[{number}] has a value only where a program is stopped")

    def grad(self, tensor: Any) -> Any:
        """There is no tensor that one could ask."""
        raise NotImplementedError

    def of(self, tensor: Any, what: str) -> Any:
        """There is no tensor that one could ask."""
        raise NotImplementedError


def facts_of(health: Health, slot: int) -> dict[str, Any]:
    """What an expression may say of a gradient that was measured."""
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


def write_value(value: Any) -> str:
    """A value of an expression as text; a tensor has none."""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, tuple):
        return f"[{', '.join(map(write_value, value))}]"
    return str(value)


class Expression:
    """An expression that was read.

    Args:
        text: as the user writes it.

    Raises:
        ExpressionError: it is none.
    """

    KIND = "an expression"
    EXAMPLE = "fc.weight.grad.norm() or norm"

    def __init__(self, text: str) -> None:
        self.text = text.strip()
        kind = self.KIND
        if not self.text:
            raise ExpressionError(f"{kind} can't be empty; write one like {self.EXAMPLE}")
        if len(self.text) > LONGEST:
            raise ExpressionError(f"{kind} has at most {LONGEST} characters")
        try:
            readable = _readable(self.text)
            tree = ast.parse(readable, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise ExpressionError(
                f"{self.text!r} is not {kind}; write one like {self.EXAMPLE}, and a name that"
                ' Python does not take as parameter("a-b.weight")'
            ) from None
        reader = _Reader(readable, kind)
        part = reader.read(tree, 0)
        self._run = part.run
        self.is_tensor = part.is_tensor
        """Whether its value is a tensor and no number."""
        self.parameters = frozenset(reader.parameters)
        """Names of the parameters in it."""
        self.speaks_of_gradient = reader.uses_facts
        """Whether it says anything of the gradient at hand."""
        self.needs_tensors = bool(reader.parameters) or reader.uses_slots
        """Whether a recording can't answer it."""
        self.compared = ""
        """What is held against a bound, where that is all it does: ``norm`` of ``norm > 1e3``."""
        if isinstance(tree, ast.Compare) and len(tree.ops) == 1:
            self.compared = _plain(ast.get_source_segment(readable, tree.left) or "")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"

    def value(self, scope: Scope) -> Any:
        """What it is now.

        Raises:
            UnknownValueError: it has no value here.
        """
        try:
            return self._run(scope)
        except UnknownValueError:
            raise
        except IndexError:
            raise UnknownValueError(f"{self.text}: there is no such dimension") from None
        except ArithmeticError as error:
            raise UnknownValueError(f"{self.text}: {_first_line(error)}") from None
        except (TypeError, ValueError, RuntimeError) as error:
            raise UnknownValueError(f"{self.text}: {_first_line(error)}") from None


class Condition(Expression):
    """An expression that holds, or does not."""

    KIND = "a condition"
    EXAMPLE = "norm > 1e3 or shape[0] == 7"

    def __init__(self, text: str) -> None:
        super().__init__(text)
        if self.is_tensor:
            raise ExpressionError(_no_number(self.text))

    def holds(self, scope: Scope) -> bool:
        """Whether it is true; where something in it is not known, it is not."""
        try:
            return bool(self.value(scope))
        except UnknownValueError:
            return False


class _Part(NamedTuple):
    """A part of an expression."""

    run: Callable[[Scope], Any]
    is_tensor: bool = False
    is_shape: bool = False


class _Reader:
    """Makes parts of what Python's parser has found, and refuses whatever is not meant."""

    def __init__(self, text: str, kind: str) -> None:
        self._text = text
        self._kind = kind
        self.parameters: set[str] = set()
        self.uses_facts = self.uses_slots = False

    def read(self, node: ast.expr, depth: int) -> _Part:
        """A part; a tensor where it is one."""
        if depth > _DEEPEST:
            raise ExpressionError(f"{self._kind} is nested at most {_DEEPEST} deep")
        match node:
            case ast.Constant(value=value) if type(value) in _CONSTANTS:
                return self._constant(value)
            case ast.Name() | ast.Attribute():
                return self._named(node, depth)
            case ast.Call(args=args, keywords=[]):
                return self._call(node, node.func, args, depth)
            case ast.Subscript(value=value, slice=index) if not isinstance(index, ast.Slice):
                return self._item(node, value, index, depth)
            case ast.Compare(left=left, ops=[op], comparators=[ast.Constant(value=None)]) if (
                isinstance(op, ast.Is | ast.IsNot)
            ):
                return self._is_none(left, op, depth)
            case _:
                return self._computed(node, depth)

    def _constant(self, value: Any) -> _Part:
        if type(value) is int and abs(value) >= _LARGEST:
            raise ExpressionError(f"a number in {self._kind} is too large")
        return _Part(lambda _: value)

    def _computed(self, node: ast.expr, depth: int) -> _Part:
        match node:
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
                apply, one = _UNARY[type(op)], self._value(operand, depth)
                return _Part(lambda scope: apply(one(scope)))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                compute = _ARITHMETIC[type(op)]
                first, second = self._value(left, depth), self._value(right, depth)
                return _Part(lambda scope: _bounded(compute, first(scope), second(scope)))
            case ast.BoolOp(op=op, values=values):
                several = [self._value(each, depth) for each in values]
                return _Part(
                    lambda scope: _joined(several, scope, ends_with=isinstance(op, ast.Or))
                )
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                members = [self._value(each, depth) for each in parts]
                return _Part(lambda scope: tuple(each(scope) for each in members))
            case ast.Compare(left=left, ops=ops, comparators=others) if all(
                type(op) in _COMPARISONS for op in ops
            ):
                compare = [_COMPARISONS[type(op)] for op in ops]
                compared = [self._value(each, depth) for each in (left, *others)]
                return _Part(lambda scope: _compared(compare, compared, scope))
        raise ExpressionError(
            f"{self._said(node)!r} is not possible in {self._kind}, which has {_LANGUAGE}"
        )

    def _value(self, node: ast.expr, depth: int) -> Callable[[Scope], Any]:
        """A part that is no tensor."""
        part = self.read(node, depth + 1)
        if part.is_tensor:
            raise ExpressionError(_no_number(self._said(node)))
        return part.run

    def _tensor(self, node: ast.expr, depth: int) -> _Part:
        part = self.read(node, depth + 1)
        if not part.is_tensor:
            raise ExpressionError(f"{self._said(node)!r} is no tensor in {self._kind}")
        return part

    def _named(self, node: ast.Name | ast.Attribute, depth: int) -> _Part:
        """A fact of the gradient, a parameter, its ``.grad``, a fact of one of them."""
        path, owner = _path(node)
        if owner is not None:
            part = self._tensor(owner, depth)
        elif len(path) == 1 and path[0] in NAMES:
            self.uses_facts = True
            (name,) = path
            return _Part(lambda scope: scope.fact(name), is_shape=name == "shape")
        else:
            asked = len(path)
            asked -= asked > 1 and path[asked - 1] in FACTS
            asked -= asked > 1 and path[asked - 1] == "grad"
            part = self._parameter(".".join(path[:asked]))
            path = path[asked:]
        for name in path:
            if not part.is_tensor or name not in {"grad", *FACTS}:
                raise ExpressionError(
                    f"{self._said(node)!r} is not possible in {self._kind}: a tensor has .grad,"
                    f" {', '.join(f'.{each}' for each in FACTS)} and methods like .norm()"
                )
            part = _grad_of(part) if name == "grad" else _asked(part, name)
        return part

    def _parameter(self, name: str) -> _Part:
        if name in SLOTS:
            raise ExpressionError(f"say which gradient of the node, as in {name}[0].norm()")
        if "__" in name or ".grad." in name:
            raise ExpressionError(f"{name!r} is not the name of a parameter")
        self.parameters.add(name)
        return _Part(lambda scope: scope.parameter(name), is_tensor=True)

    def _call(self, node: ast.Call, called: ast.expr, args: list[ast.expr], depth: int) -> _Part:
        match called, args:
            case ast.Name(id="abs"), [one] if not isinstance(one, ast.Starred):
                of = self._value(one, depth)
                return _Part(lambda scope: abs(of(scope)))
            case ast.Name(id="parameter"), [ast.Constant(value=str(name))]:
                return self._parameter(name)
            case ast.Attribute(value=owner, attr=method), []:
                if method in TENSOR_METHODS:
                    part = self._tensor(owner, depth)
                    return _asked(part, method)._replace(is_tensor=True)
                if method in NUMBER_METHODS:
                    read = self._tensor if method != "item" else self.read
                    part = read(owner, depth + 1)
                    return _asked(part, method) if part.is_tensor else part
        known = ", ".join((*TENSOR_METHODS, *NUMBER_METHODS))
        raise ExpressionError(
            f"{self._said(node)!r} is not possible in {self._kind}; what can be called is"
            f" abs(NUMBER), and of a tensor, without arguments: {known}"
        )

    def _item(self, node: ast.expr, value: ast.expr, index: ast.expr, depth: int) -> _Part:
        match value, index:
            case ast.Name(id="input" | "output" as what), ast.Constant(value=int(number)) if (
                type(number) is int and number < _LARGEST
            ):
                self.uses_slots = True
                return _Part(lambda scope: scope.slot(what, number), is_tensor=True)
        part = self.read(value, depth + 1) if isinstance(value, ast.Name | ast.Attribute) else None
        if part is None or not part.is_shape:
            raise ExpressionError(
                f"{self._said(node)!r} is not possible in {self._kind}: brackets are for shape[0],"
                " input[0] and output[0]"
            )
        of, place = part.run, self._value(index, depth)
        return _Part(lambda scope: of(scope)[place(scope)])

    def _is_none(self, left: ast.expr, op: ast.cmpop, depth: int) -> _Part:
        of, wanted = self._tensor(left, depth).run, isinstance(op, ast.Is)
        return _Part(lambda scope: (of(scope) is None) is wanted)

    def _said(self, node: ast.AST) -> str:
        return _plain(ast.get_source_segment(self._text, node) or "")


def _readable(text: str) -> str:
    """A text that Python can read: Note [Names of parameters]."""
    if _DIGIT in text or _HASH in text:
        raise ValueError(text)

    def change(found: re.Match[str]) -> str:
        name = found["name"]
        if name is None:
            return found[0]
        parts = [_DIGIT + each if each[0].isdigit() else each for each in name.split(".")]
        return ".".join(parts).replace("#", _HASH)

    return _TOKENS.sub(change, text)


def _plain(text: str) -> str:
    """A part of a text as the user wrote it."""
    return text.replace(_DIGIT, "").replace(_HASH, "#")


def _path(node: ast.Name | ast.Attribute) -> tuple[list[str], ast.expr | None]:
    """The names of a dotted path, and what they are of where that is no name."""
    names: list[str] = []
    owner: ast.expr = node
    while isinstance(owner, ast.Attribute):
        names.append(_plain(owner.attr))
        owner = owner.value
    if isinstance(owner, ast.Name):
        return [_plain(owner.id), *reversed(names)], None
    return names[::-1], owner


def _grad_of(part: _Part) -> _Part:
    of = part.run
    return _Part(lambda scope: scope.grad(_there(of(scope))), is_tensor=True)


def _asked(part: _Part, what: str) -> _Part:
    of = part.run
    return _Part(lambda scope: scope.of(_there(of(scope)), what), is_shape=what == "shape")


def _there(tensor: Any) -> Any:
    if tensor is None:
        raise UnknownValueError("there is no gradient: it is None")
    return tensor


def _no_number(text: str) -> str:
    return f"{text!r} is a tensor and no number; write {text}.norm(), or the like"


def _joined(several: list[Callable[[Scope], Any]], scope: Scope, *, ends_with: bool) -> Any:
    """``and`` and ``or``, which look no further than Python does."""
    value = None
    for each in several:
        value = each(scope)
        if bool(value) is ends_with:
            break
    return value


def _compared(
    compare: list[Callable[[Any, Any], Any]], several: list[Callable[[Scope], Any]], scope: Scope
) -> bool:
    left = several[0](scope)
    for holds, each in zip(compare, several[1:], strict=True):
        right = each(scope)
        if not holds(left, right):
            return False
        left = right
    return True


def _bounded(compute: Callable[[Any, Any], Any], left: Any, right: Any) -> float:
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        raise TypeError("only numbers are computed with")
    result = compute(left, right)
    if isinstance(result, int) and abs(result) >= _LARGEST:
        return math.inf if result > 0 else -math.inf
    return float(result) if isinstance(result, float) else int(result)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
