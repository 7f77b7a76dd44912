"""The lines of a Function's backward that make a gradient."""

from __future__ import annotations

import ast
import contextlib
import inspect
import textwrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import CodeType

_TALKS = {
    "all_gather",
    "all_reduce",
    "all_to_all",
    "barrier",
    "broadcast",
    "dist",
    "distributed",
    "isend",
    "recv",
    "reduce_scatter",
    "send",
}


def made_in(function: type[Any], place: int) -> tuple[str, int, str] | None:
    """File, line and function in which the gradient of an argument is made; None: not known.

    Where ``backward`` returns a name, the line at which that was last set; else the line of the
    return.

    Args:
        function: the Function.
        place: of the argument among those of ``forward``, from 0.
    """
    backward = _backward(function)
    code = getattr(inspect.unwrap(backward), "__code__", None)
    if code is None:
        return None
    line = code.co_firstlineno
    try:
        lines, first = inspect.getsourcelines(backward)
        tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return code.co_filename, line, code.co_name
    returns = [node for node in ast.walk(tree) if isinstance(node, ast.Return) and node.value]
    if not returns:
        return code.co_filename, line, code.co_name
    value: ast.expr | None = max(returns, key=lambda node: node.lineno).value
    if isinstance(value, ast.Tuple) and place < len(value.elts):
        value = value.elts[place]
    if value is None:
        return code.co_filename, line, code.co_name
    found = value.lineno
    if isinstance(value, ast.Name) and value.id not in _unpacked(tree):
        found = max(_set_at(tree, value.id), default=found)
    return code.co_filename, first + found - 1, code.co_name


def defined_at(function: type[Any]) -> tuple[str, int, str] | None:
    """File, line and function of the definition of backward; None: not known."""
    code = getattr(inspect.unwrap(_backward(function)), "__code__", None)
    if code is None:
        return None
    first = code.co_firstlineno
    with contextlib.suppress(OSError, TypeError):
        lines, first = inspect.getsourcelines(code)
        first += next((n for n, line in enumerate(lines) if line.lstrip().startswith("def ")), 0)
    return code.co_filename, first, code.co_name


def writes_at(function: type[Any]) -> tuple[str, int, str] | None:
    """File, line and function of the one line of backward that writes to what was saved.

    Where there is none, or several, the definition of backward; None: not known.
    """
    defined = defined_at(function)
    code = getattr(inspect.unwrap(_backward(function)), "__code__", None)
    try:
        lines, first = inspect.getsourcelines(code)  # type: ignore[arg-type]
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return defined
    saved = _unpacked(tree)
    found = [
        target.lineno
        for node in ast.walk(tree)
        if (target := _written(node)) is not None and saved & _names_in(target)
    ]
    if len(found) != 1 or code is None:
        return defined
    return code.co_filename, first + found[0] - 1, code.co_name


def _written(node: ast.AST) -> ast.expr | None:
    """What a statement or a call changes in place; None: nothing."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        name = node.func.attr
        return node.func.value if name.endswith("_") and not name.endswith("__") else None
    if isinstance(node, ast.AugAssign):
        return node.target
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        return node.targets[0].value
    return None


def _names_in(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def kept_at(function: type[Any], name: str) -> tuple[str, int, str] | None:
    """File, line and function in which ``ctx.name`` is set in forward; None: not one line.

    Args:
        function: the Function.
        name: of the attribute of ``ctx``.
    """
    forward: Any = function.forward
    if function.setup_context is not _base().setup_context:
        forward = function.setup_context
    code = getattr(inspect.unwrap(forward), "__code__", None)
    if code is None:
        return None
    try:
        lines, first = inspect.getsourcelines(code)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return None
    found = [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store)
    ]
    return (code.co_filename, first + found[0] - 1, code.co_name) if len(found) == 1 else None


def names_in_backward(function: type[Any]) -> set[str]:
    """Names of globals and attributes that backward uses."""
    code = getattr(inspect.unwrap(_backward(function)), "__code__", None)
    return set() if code is None else set(_names(code))


def talks_to_others(function: type[Any]) -> bool:
    """Whether forward or backward looks as if it communicated with other processes."""
    codes = [
        getattr(inspect.unwrap(each), "__code__", None)
        for each in (function.forward, _backward(function))
    ]
    return any(code is not None and not _TALKS.isdisjoint(_names(code)) for code in codes)


def _backward(function: type[Any]) -> Any:
    if function.backward is not _base().backward:
        return function.backward
    return function.vjp


def _base() -> Any:
    import torch

    return torch.autograd.Function


def _names(code: CodeType) -> list[str]:
    inner = [each for each in code.co_consts if isinstance(each, type(code))]
    return [*code.co_names, *(name for each in inner for name in _names(each))]


def _unpacked(tree: ast.AST) -> set[str]:
    """The names of what is taken from ``ctx.saved_tensors``: that line makes no gradient."""
    return {
        name.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "saved_tensors"
        for target in node.targets
        for name in ast.walk(target)
        if isinstance(name, ast.Name)
    }


def _set_at(tree: ast.AST, name: str) -> list[int]:
    return [
        target.lineno
        for target in ast.walk(tree)
        if isinstance(target, ast.Name) and target.id == name and isinstance(target.ctx, ast.Store)
    ]
