"""The line that keeps the result of a function, and its graph, for later calls of it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.code_search import called_name, decorator_around, line_at, nodes_of

if TYPE_CHECKING:
    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame, NodeRow

_DECORATORS: Final = frozenset({"cache", "cached_property", "lru_cache"})
_PARAMETRIZATIONS: Final = ".parametrizations."
"""In the paths of modules that compute a parameter of another one."""


class Memoised(NamedTuple):
    """What keeps a result."""

    frame: Frame
    remedy: str
    """What it does and what to do instead, in sentences."""


def memoised(trace: Trace, node: NodeRow, call: Frame | None) -> Memoised | None:
    """What of the program keeps the result of which a node is for another backward pass.

    None: nothing that is known to.

    Args:
        trace: holds the text of the program.
        node: of the part that is used again.
        call: the line that calls backward; None: not known.
    """
    if call is not None and _PARAMETRIZATIONS in f".{node.module or ''}":
        block = _cached_around(trace, call)
        if block is not None:
            return Memoised(
                block,
                "parametrize.cached() keeps each parametrized weight, with its graph, as long as"
                " its block lasts. Enter it anew in each step, around one forward and backward.",
            )
    for frame in reversed([each for each in node.stack if not each.hidden]):
        found = decorator_around(trace, frame, _DECORATORS)
        if found is not None:
            written, line = found
            return Memoised(
                line_at(trace, frame.file, line, frame.function),
                f"@{written} keeps what {frame.function}() gave, with its graph. Take it off, and"
                " compute it anew in each step; or detach() what is to be kept.",
            )
    return None


def _cached_around(trace: Trace, call: Frame) -> Frame | None:
    """The innermost ``with parametrize.cached():`` around a line."""
    found = [
        (node.lineno, function)
        for function, node in nodes_of(trace, call.file)
        if isinstance(node, ast.With | ast.AsyncWith)
        and node.lineno <= call.line <= (node.end_lineno or node.lineno)
        and any(
            isinstance(item.context_expr, ast.Call) and called_name(item.context_expr) == "cached"
            for item in node.items
        )
    ]
    if not found:
        return None
    line, function = max(found)
    return line_at(trace, call.file, line, function)
