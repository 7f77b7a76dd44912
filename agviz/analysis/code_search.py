"""Looking for lines in the source that a trace holds, by what is written there."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def parsed(source: Sequence[str]) -> ast.Module:
    """The syntax tree of a file; an empty one where it is not Python."""
    try:
        return ast.parse("\n".join(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def with_functions(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """All nodes in the order of the text, each with the name of the function in which it is."""
    waiting: list[tuple[str, ast.AST]] = [("<module>", tree)]
    while waiting:
        function, node = waiting.pop()
        yield function, node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        waiting += [(function, child) for child in reversed(list(ast.iter_child_nodes(node)))]
