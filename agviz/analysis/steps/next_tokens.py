"""Which sequence a model is given, and which one its loss holds it to, by the text of a program.

Note [The next token]
The targets are the next ones where both are slices of one sequence, ``x[:, :-1]`` and ``x[:, 1:]``
or ``x[i : i + n]`` and ``x[i + 1 : i + n + 1]``, or the targets are ``x[:, 1:]`` and the last
prediction is left out.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.code_search import called_name
from agviz.analysis.steps.values import all_given

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.analysis.steps.given_names import GivenNames

_MOST_DEEP: Final = 8
_OF_CLASSES: Final = frozenset({"cross_entropy", "nll_loss", "CrossEntropyLoss", "NLLLoss"})
_OF_NUMBERS: Final = frozenset(
    {"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"}
    | {"MSELoss", "L1Loss", "SmoothL1Loss", "HuberLoss"}
)
_SHAPING: Final = frozenset(
    {"contiguous", "cpu", "cuda", "detach", "flatten", "float", "log_softmax", "long", "permute"}
    | {"reshape", "squeeze", "to", "transpose", "unsqueeze", "view"}
)


class Slice(NamedTuple):
    """A part of a sequence, or all of it."""

    base: str
    """Says which sequence it is."""
    axis: int
    """Of time; -1: it is all of the sequence."""
    lower: str = "0"
    upper: str = ""

    def precedes(self, other: Slice) -> bool:
        """Whether the other one is what follows each element of this one."""
        return (
            self.base == other.base
            and self.axis in {-1, other.axis}
            and other.lower == ("1" if self.lower == "0" else f"{self.lower} + 1")
        )


class Prediction(NamedTuple):
    """A loss of what a model gives, and what that and the model are given."""

    loss: ast.Call
    model: ast.expr | ast.ClassDef
    """What is called, or the class whose method has the loss."""
    given: Slice
    targets: Slice
    is_of_classes: bool
    is_cut: bool
    """Whether predictions are left out."""


class NextTokens:
    """Asked for losses of a program."""

    def __init__(self, names: GivenNames) -> None:
        self._names = names

    def predictions(self, tree: ast.AST) -> Iterator[Prediction]:
        """Losses of a file whose model is given one thing, and of which both are known."""
        for call in ast.walk(tree):
            if not isinstance(call, ast.Call):
                continue
            given = _arguments(call)
            targets = None if given is None else self._slice(given[1], 0)
            if given is None or targets is None:
                continue
            kinds = {called_name(call)}
            if not kinds <= _OF_CLASSES | _OF_NUMBERS:
                kinds = self._names.classes(call.func) if self._is_named(call.func) else set()
            if kinds and kinds <= _OF_CLASSES | _OF_NUMBERS:
                found = self._of_forward(given[1]) or self._of_model(given[0], 0)
                if found is not None:
                    model, taken, is_cut = found
                    yield Prediction(call, model, taken, targets, kinds <= _OF_CLASSES, is_cut)

    def _is_named(self, called: ast.expr) -> bool:
        return isinstance(called, ast.Name) or ast.unparse(called).startswith("self.")

    def _of_model(self, value: ast.expr, depth: int) -> tuple[ast.expr, Slice, bool] | None:
        """The model that gave predictions, what it was given, and whether some were left out."""
        if depth > _MOST_DEEP:
            return None
        match value:
            case ast.Subscript(value=inner):
                cut = _sliced(value)
                found = None if cut is None or cut[1] != "0" else self._of_model(inner, depth + 1)
                return None if found is None else (*found[:2], True)
            case ast.Call() if called_name(value) in _SHAPING and not self._is_self(value):
                return self._of_model(all_given(value)[0], depth + 1)
            case ast.Call(func=called, args=[given], keywords=[]) if self._is_named(called):
                taken = self._slice(given, 0)
                return None if taken is None else (called, taken, False)
            case ast.Name():
                found_values = self._names.given(value)
                if len(found_values) == 1 and found_values[0] is not None:
                    return self._of_model(found_values[0], depth + 1)
        return None

    def _is_self(self, call: ast.Call) -> bool:
        return ast.unparse(call.func).startswith("self.") or not all_given(call)

    def _of_forward(self, targets: ast.expr) -> tuple[ast.ClassDef, Slice, bool] | None:
        """The class whose forward is given the targets as its second argument."""
        function, owner = self._names.function(targets), self._names.owner(targets)
        if function is None or owner is None or function.name != "forward":
            return None
        arguments = [each.arg for each in function.args.args]
        named = {each.id for each in ast.walk(targets) if isinstance(each, ast.Name)}
        if len(arguments) != 3 or arguments[2] not in named:
            return None
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and node.id == arguments[1]:
                taken = self._slice(node, 0)
                return None if taken is None else (owner, taken, False)
        return None

    def _slice(self, value: ast.expr, depth: int) -> Slice | None:
        found: Slice | None = Slice(f"{id(value)}", -1)
        inner: ast.expr | None = None
        match value:
            case ast.Subscript() if (cut := _sliced(value)) is not None:
                whole = self._slice(value.value, depth + 1)
                is_whole = whole is not None and whole.axis == -1
                found = Slice(whole.base, *cut) if whole is not None and is_whole else None
            case ast.Call() if called_name(value) in _SHAPING and not self._is_self(value):
                inner = all_given(value)[0]
            case ast.Call(args=[ast.ListComp(elt=each) as listed, *_]):
                found = self._stacked(each, listed) if called_name(value) == "stack" else found
            case ast.Name() | ast.Attribute():
                values = self._names.given(value)
                inner = values[0] if len(values) == 1 else None
                scope = id(self._names.function(value)) if isinstance(value, ast.Name) else ""
                found = Slice(f"{scope} {ast.unparse(value)}", -1)
        if inner is not None:
            return self._slice(inner, depth + 1) if depth < _MOST_DEEP else None
        return found

    def _stacked(self, each: ast.expr, listed: ast.ListComp) -> Slice | None:
        while isinstance(each, ast.Call) and each.args:
            each = all_given(each)[0]
        cut = _sliced(each) if isinstance(each, ast.Subscript) else None
        if cut is None or not isinstance(each, ast.Subscript) or cut[0] != 0:
            return None
        base = f"{ast.unparse(each.value)} {' '.join(map(ast.unparse, listed.generators))}"
        return Slice(base, 1, *cut[1:])


def _arguments(call: ast.Call) -> tuple[ast.expr, ast.expr] | None:
    words = {word.arg: word.value for word in call.keywords}
    given = [*call.args]
    given += [words[each] for each in ("input", "target")[len(given) :] if each in words]
    return (given[0], given[1]) if len(given) >= 2 else None


def _sliced(value: ast.Subscript) -> tuple[int, str, str] | None:
    """The axis of which an index takes a part, and its bounds; None: it takes something else."""
    index = value.slice
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    found: tuple[int, str, str] | None = None
    for axis, part in enumerate(parts):
        if isinstance(part, ast.Constant) and part.value is Ellipsis:
            continue
        if not isinstance(part, ast.Slice) or part.step is not None:
            return None
        bounds = ["" if each is None else ast.unparse(each) for each in (part.lower, part.upper)]
        if any(bounds):
            if found is not None:
                return None
            found = axis, bounds[0] or "0", bounds[1]
    return found
