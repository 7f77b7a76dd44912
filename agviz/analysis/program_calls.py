"""The torch functions of whole passes, for what is judged by how often, and on what, they ran."""

from __future__ import annotations

import ast
from collections import defaultdict
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import tree_of
from agviz.traces.rows import GraphTaskStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from agviz.traces.reader import Trace
    from agviz.traces.rows import ForwardOpRow, Frame, GraphTaskRow

MOST_OPS: Final = 20_000
"""Of more in one pass nothing is said."""
_LOOPS: Final = (
    *(ast.For, ast.AsyncFor, ast.While),
    *(ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),
)
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def last_passes(trace: Trace, most: int) -> list[GraphTaskRow]:
    """The last outermost passes that came to their end, in order."""
    found: list[GraphTaskRow] = []
    for task in reversed(trace.graph_tasks.outermost):
        if len(found) == most:
            break
        if task.status is GraphTaskStatus.FINISHED and not task.traced:
            found.append(task)
    return found[::-1]


def ops_of_pass(trace: Trace, graph_task: int) -> Sequence[ForwardOpRow]:
    """What was called between the pass before and the end of this one; empty: nothing, or too much.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    found: list[ForwardOpRow] = []
    for number in trace.family(graph_task):
        found += trace.forward_ops(number, limit=MOST_OPS)
        if len(found) >= MOST_OPS:
            return ()
    return sorted(found, key=lambda op: op.id)


def users_of(ops: Iterable[ForwardOpRow]) -> Mapping[int, list[ForwardOpRow]]:
    """By tensor: the calls that it was given to, in order; of one that none was, an empty list."""
    users: defaultdict[int, list[ForwardOpRow]] = defaultdict(list)
    for op in ops:
        for row in op.inputs:
            users[row.tensor].append(op)
    return users


def looping_frame(trace: Trace, stack: Sequence[Frame]) -> tuple[Frame, ast.AST, int] | None:
    """The innermost line of a stack that is in a loop of its function, that loop, and its place.

    None: no line is in one, as far as the sources tell.
    """
    for place in range(len(stack) - 1, -1, -1):
        frame = stack[place]
        loop = None if frame.hidden else _loop_around(trace, frame)
        if loop is not None:
            return frame, loop, place
    return None


def function_around(trace: Trace, frame: Frame) -> ast.AST | None:
    """The innermost function around a line; None: none, or its source is not known."""
    return max(
        (node for node in _around(trace, frame) if isinstance(node, _FUNCTIONS)),
        key=lambda node: node.lineno,
        default=None,
    )


def _loop_around(trace: Trace, frame: Frame) -> ast.AST | None:
    """The innermost loop around a line, in the same function, whose body runs the line."""
    inside = list(_around(trace, frame))
    functions = [node for node in inside if isinstance(node, _FUNCTIONS)]
    function = max(functions, key=lambda node: node.lineno, default=None)
    own = set(map(id, ast.walk(function))) if function is not None else None
    loops = [
        node
        for node in inside
        if isinstance(node, _LOOPS)
        and (own is None or id(node) in own)
        and not (isinstance(node, ast.For | ast.AsyncFor) and frame.line == node.lineno)
    ]
    return max(loops, key=lambda node: (node.lineno, node.col_offset), default=None)


def _around(trace: Trace, frame: Frame) -> Iterator[ast.stmt | ast.expr]:
    for node in ast.walk(tree_of(trace, frame.file)):
        if isinstance(node, ast.stmt | ast.expr):
            first, last = node.lineno, node.end_lineno or node.lineno
            if first <= frame.line <= last:
                yield node
