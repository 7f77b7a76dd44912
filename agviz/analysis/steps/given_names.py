"""What the text of a program gives to a name: by scope, by order, through loops and functions.

:class:`agviz.analysis.steps.values.Values` gives all values that a name has anywhere in its
function; here it is those that it may have at one place.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from agviz.analysis.code_search import (
    called_name,
    targets_of,
    tree_of,
    turns_gradients_off,
    user_files,
    with_functions,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.traces.reader import Trace

_MOST_DEEP: Final = 8
_LISTS: Final = frozenset({"ModuleList", "Sequential", "list"})
_SAME_MODULE: Final = frozenset(
    {"DataParallel", "DistributedDataParallel", "compile", "cpu", "cuda", "deepcopy", "double"}
    | {"float", "to", "train"}
)
_SHARED: Final = (ast.boolop, ast.cmpop, ast.expr_context, ast.operator, ast.unaryop)
"""Of these a tree has one node in many places."""
_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


class _Part(NamedTuple):
    """One of the values that a call gives."""

    call: ast.Call
    place: int


class _Binding(NamedTuple):
    line: int
    column: int
    value: ast.expr | _Part | None
    """None: it is not known."""


class GivenNames:
    """Asked for expressions of a program, which are nodes of its syntax trees.

    Args:
        trace: holds the text of its files.
    """

    def __init__(self, trace: Trace) -> None:
        self.trees = {file: tree_of(trace, file) for file in user_files(trace)}
        """By file."""
        self.calls: list[tuple[str, ast.Call]] = []
        """All of them with their files, in the order of the text."""
        self._parents: dict[ast.AST, ast.AST] = {}
        self._bound: dict[tuple[ast.AST | None, str], list[_Binding]] = {}
        """By function or class, and by variable or attribute."""
        self.functions: dict[str, list[_Function]] = {}
        """By name."""
        for file, tree in self.trees.items():
            for _, node in with_functions(tree):
                self._parents.update(
                    (child, node)
                    for child in ast.iter_child_nodes(node)
                    if not isinstance(child, _SHARED)
                )
                self._read(node)
                if isinstance(node, ast.Call):
                    self.calls.append((file, node))
        for bindings in self._bound.values():
            bindings.sort(key=lambda each: each.line)

    def above(self, node: ast.AST, *kinds: type[ast.AST]) -> ast.AST | None:
        """The innermost node of some kinds that a node is in; None: there is none."""
        while (node := self._parents.get(node)) is not None:  # type: ignore[assignment]
            if isinstance(node, kinds):
                return node
        return None

    def function(self, node: ast.AST) -> _Function | None:
        """The function that a node is in; None: it is outside of functions."""
        return self.above(node, ast.FunctionDef, ast.AsyncFunctionDef)  # type: ignore[return-value]

    def is_without_gradients(self, node: ast.AST) -> bool:
        """Whether gradients are off at a place: by a block, or by a decorator of a function."""
        while (around := self.above(node, ast.With, ast.FunctionDef)) is not None:
            if turns_gradients_off(around):
                return True
            node = around
        return False

    def owner(self, node: ast.AST) -> ast.ClassDef | None:
        """The class that a node is in; None: it is outside of classes."""
        return self.above(node, ast.ClassDef)  # type: ignore[return-value]

    def given(self, node: ast.expr) -> Sequence[ast.expr | None]:
        """What a variable, an attribute of self or a call of the program may be at its place.

        Args:
            node: a node of the text.

        Returns:
            None for each value that is not known, nothing where no value is; without None of
            Python, which is an argument that was left out.
        """
        match node:
            case ast.Name(id=name):
                found = list(self._of_variable(node, name))
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                owner = self.owner(node)
                found = [] if owner is None else self._bound.get((owner, name), [])
            case ast.Call():
                return self._returned(node)
            case _:
                return []
        values = [value for one in found for value in self._values(one)]
        return [each for each in values if not _is_none(each)]

    def classes(self, made: ast.expr, depth: int = 0) -> set[str]:
        """Names of the classes that something is made of; of the elements of a list of modules.

        Args:
            made: what is called, as ``self.attention``, or an expression that makes it.
            depth: of names that were followed.

        Returns:
            With an empty name where one is not known.
        """
        if depth > _MOST_DEEP:
            return {""}
        match made:
            case ast.Call() if called_name(made) in _LISTS:
                inner = [part for each in made.args for part in _elements(each)]
            case ast.Call(func=ast.Attribute(value=module)) if called_name(made) in _SAME_MODULE:
                inner = made.args[:1] if _is_library(module) else [module]
            case ast.Call() if called_name(made) in _SAME_MODULE:
                inner = made.args[:1]
            case ast.Call():
                return {called_name(made)}
            case ast.Subscript(value=value):
                inner = [value]
            case ast.List() | ast.Tuple() | ast.ListComp() | ast.GeneratorExp():
                inner = list(_elements(made))
            case _:
                values = self.given(made)
                inner = [each for each in values if each is not None]
                if len(inner) < len(values):
                    return {""}
        return {name for each in inner for name in self.classes(each, depth + 1)}

    def _read(self, node: ast.AST) -> None:
        match node:
            case ast.Assign(value=value) | ast.AnnAssign(value=ast.expr() as value):
                for target in targets_of(node):
                    self._bind(target, value, node)
            case ast.AugAssign(target=target):
                self._bind(target, None, node)
            case ast.NamedExpr(target=target, value=value):
                self._bind(target, value, node)
            case ast.For(target=target, iter=each):
                self._bind_each(target, each, node)
            case ast.Call():
                self._read_call(node)
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self.functions.setdefault(node.name, []).append(node)

    def _read_call(self, node: ast.Call) -> None:
        """What is registered as a buffer, or changed in place."""
        match node:
            case ast.Call(args=[ast.Constant(value=str() as buffer), value, *_]):
                if called_name(node) == "register_buffer":
                    self._put((self.owner(node), buffer), value, node)
            case ast.Call(func=ast.Attribute(value=ast.Name() as target, attr=attr)):
                if attr.endswith("_") and attr != "requires_grad_":
                    self._bind(target, None, node)

    def _bind(self, target: ast.expr, value: ast.expr | _Part | None, node: ast.AST) -> None:
        match target:
            case ast.Name(id=name):
                self._put((self.function(node), name), value, node)
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                self._put((self.owner(node), name), value, node)
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                for index, part in enumerate(parts):
                    self._bind(part, _part(value, index, len(parts)), node)

    def _bind_each(self, target: ast.expr, each: ast.expr, node: ast.AST) -> None:
        """A list stands for its elements: its modules are asked for, or nothing."""
        if isinstance(target, ast.Tuple) and isinstance(each, ast.Call):
            lists: Sequence[ast.expr | None] = ()
            if called_name(each) in {"enumerate", "zip"}:
                lists = [None, *each.args] if called_name(each) == "enumerate" else each.args
            for index, part in enumerate(target.elts):
                self._bind(part, lists[index] if index < len(lists) else None, node)
        else:
            self._bind(target, None if isinstance(target, ast.Tuple) else each, node)

    def _put(
        self, key: tuple[ast.AST | None, str], value: ast.expr | _Part | None, node: ast.AST
    ) -> None:
        where = node if isinstance(node, ast.stmt | ast.expr) else None
        if where is not None:
            binding = _Binding(where.lineno, where.col_offset, value)
            self._bound.setdefault(key, []).append(binding)

    def _of_variable(self, node: ast.expr, name: str) -> Iterator[_Binding]:
        scope = self.function(node)
        is_own = True
        while True:
            found = self._bound.get((scope, name), [])
            before = [each for each in found if each.line < node.lineno or not is_own]
            if before:
                least = min(each.column for each in before)
                for each in reversed(before):
                    yield each
                    if each.column <= least:
                        return
                return
            if scope is None or found:
                return
            if name in _arguments(scope):
                yield from self._of_argument(scope, name)
                return
            scope, is_own = self.function(scope), False

    def _of_argument(self, function: _Function, name: str) -> Iterator[_Binding]:
        owner = self.above(function, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        names = [each for each in _arguments(function) if each != "self"]
        for _, call in self.calls:
            if function.name in {"__call__", "forward"} and isinstance(owner, ast.ClassDef):
                is_it = self._is_of(call, owner)
            elif function.name == "__init__" and isinstance(owner, ast.ClassDef):
                is_it = called_name(call) == owner.name
            else:
                is_it = called_name(call) == function.name
            if not is_it:
                continue
            by_word = {word.arg: word.value for word in call.keywords}
            value: ast.expr | None = by_word.get(name)
            place = names.index(name)
            if value is None and place < len(call.args):
                value = call.args[place]
            elif value is None and None not in by_word:
                continue  # its default
            yield _Binding(call.lineno, call.col_offset, value)

    def _is_of(self, call: ast.Call, owner: ast.ClassDef) -> bool:
        is_named = isinstance(call.func, ast.Name | ast.Subscript) or (
            isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "self"
        )
        return is_named and self.classes(call.func) == {owner.name}

    def _values(self, binding: _Binding) -> Iterator[ast.expr | None]:
        if not isinstance(binding.value, _Part):
            yield binding.value
            return
        found = self._returned(binding.value.call)
        for each in found:
            is_tuple = isinstance(each, ast.Tuple) and len(each.elts) > binding.value.place
            yield each.elts[binding.value.place] if is_tuple else None  # type: ignore[union-attr]
        if not found:
            yield None

    def _returned(self, call: ast.Call) -> list[ast.expr | None]:
        """What the one function of the program of this name returns."""
        name = called_name(call)
        is_own = isinstance(call.func, ast.Name) or ast.unparse(call.func) == f"self.{name}"
        functions = self.functions.get(name, ()) if is_own else ()
        if len(functions) != 1:
            return []
        return [
            node.value
            for node in ast.walk(functions[0])
            if isinstance(node, ast.Return) and self.function(node) is functions[0]
        ]


def _part(value: ast.expr | _Part | None, index: int, count: int) -> ast.expr | _Part | None:
    match value:
        case ast.Tuple(elts=parts) | ast.List(elts=parts) if len(parts) == count:
            return parts[index]
        case ast.GeneratorExp(elt=each) | ast.ListComp(elt=each):
            return each
        case ast.Call(func=ast.Name(id="map"), args=[ast.Lambda(body=each), *_]):
            return each
        case ast.Call():
            return _Part(value, index)
    return None


def _elements(value: ast.expr) -> Iterator[ast.expr]:
    match value:
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            yield from parts
        case ast.ListComp(elt=each) | ast.GeneratorExp(elt=each):
            yield each
        case ast.Starred(value=each):
            yield from _elements(each)
        case _:
            yield value


def _arguments(function: _Function) -> list[str]:
    given = function.args
    return [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def _is_none(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Constant) and value.value is None


def _is_library(value: ast.expr) -> bool:
    return ast.unparse(value).rpartition(".")[2] in {"copy", "nn", "parallel", "torch"}
