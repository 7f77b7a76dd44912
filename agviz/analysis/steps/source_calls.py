"""Where the program's own text calls a function, from what the recording holds of it."""

from __future__ import annotations

import ast
import warnings
from typing import TYPE_CHECKING

from agviz.traces.rows import Frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agviz.traces.reader import Trace


def calls(trace: Trace, beside: Frame | None, fits: Callable[[ast.Call, str], bool]) -> list[Frame]:
    """The lines of the file of a frame that hold a call that fits.

    Args:
        trace: holds the text of the file, or this is empty.
        beside: of the program's own code; None: empty.
        fits: whether it is one, by the call and by how what is called is written.
    """
    lines = [] if beside is None else trace.source(beside.file)
    if beside is None or not lines:
        return []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd escape in a text is no business of ours
            tree = ast.parse("\n".join(lines))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    return [
        Frame(beside.file, call.lineno, function, hidden=False, source=_line(lines, call.lineno))
        for call, function in _calls(tree, "<module>")
        if fits(call, ast.unparse(call.func))
    ]


def _line(lines: list[str], number: int) -> str:
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""


def _calls(node: ast.AST, function: str) -> Iterator[tuple[ast.Call, str]]:
    waiting = [(node, function)]
    while waiting:
        part, inside = waiting.pop()
        if isinstance(part, ast.Call):
            yield part, inside
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = part.name
        waiting.extend((child, inside) for child in reversed(list(ast.iter_child_nodes(part))))


def is_schedule(_call: ast.Call, name: str) -> bool:
    """Whether it is ``scheduler.step()``."""
    owner, _, method = name.rpartition(".")
    return method == "step" and any(
        word in owner.lower() for word in ("sched", "warmup", "decay", "plateau", "cosine")
    )


def is_clip(_call: ast.Call, name: str) -> bool:
    """Whether it is ``clip_grad_norm_`` or the like."""
    return "clip_grad" in name


def is_clear(_call: ast.Call, name: str) -> bool:
    """Whether it is ``zero_grad``."""
    return name.endswith("zero_grad")


def is_new_scale(call: ast.Call, name: str) -> bool:
    """Whether it is ``scaler.update(...)`` with a scale."""
    owner, _, method = name.rpartition(".")
    return method == "update" and "scale" in owner.lower() and bool(call.args or call.keywords)
