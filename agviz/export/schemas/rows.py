"""Schemas of rows, read off their classes: fields, types and descriptions are those of the code."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import TYPE_CHECKING, Final

from agviz.export.schemas.parts import (
    INTEGER,
    NUMBER,
    TEXT,
    TRUTH,
    about,
    array,
    fields,
    mapping,
    nullable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.export.schemas.parts import Schema

_PLAIN: Final = {"int": INTEGER, "float": NUMBER, "str": TEXT, "bool": TRUTH}


def row(of: type, *, without: tuple[str, ...] = (), **instead: Schema) -> Schema:
    """The fields of a row, in their order.

    Args:
        of: the class, a NamedTuple or a dataclass.
        without: fields that are not written.
        instead: schemas of fields that are written otherwise, or whose types are none of the plain
            ones; fields that the class does not have come last.
    """
    found: dict[str, Schema] = {}
    for name, annotation, text in _annotated(of):
        if name not in without:
            schema = instead.get(name) or _of(annotation)
            found[name] = about(schema, text) if text and name not in instead else schema
    return fields({**found, **{name: instead[name] for name in instead if name not in found}})


def _annotated(of: type) -> Iterator[tuple[str, ast.expr, str]]:
    """Name, type and docstring of each field."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(of))).body
    body = definition.body if isinstance(definition, ast.ClassDef) else []
    for number, node in enumerate(body):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node.annotation, _docstring(body[number + 1 :])


def _docstring(later: list[ast.stmt]) -> str:
    match later[:1]:
        case [ast.Expr(value=ast.Constant(value=str(text)))]:
            return " ".join(text.split())
    return ""


def _of(annotation: ast.expr) -> Schema:
    """The schema of what a plain type is as JSON."""
    match annotation:
        case ast.Name(id=name) if name in _PLAIN:
            return _PLAIN[name]
        case ast.BinOp(op=ast.BitOr(), left=left, right=ast.Constant(value=None)):
            return nullable(_of(left))
        case ast.Subscript(
            value=ast.Name(id="tuple"),
            slice=ast.Tuple(elts=[item, ast.Constant(value=value)]),
        ) if value is ...:
            return array(_of(item))
        case ast.Subscript(value=ast.Name(id="list"), slice=item):
            return array(_of(item))
        case ast.Subscript(value=ast.Name(id="dict"), slice=ast.Tuple(elts=[_, item])):
            return mapping(_of(item))
    raise TypeError(f"no schema is known of {ast.unparse(annotation)}; give one")
