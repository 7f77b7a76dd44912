"""Where the program's own text calls a function, from what the recording holds of it."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Final

from agviz.analysis.code_search import parsed, with_functions
from agviz.traces.rows import Frame

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.traces.reader import Trace

BEYOND: Final = 1.01
"""Times the norm that gradients are clipped to; a gradient that nothing clipped is what it was to a
hundredth."""


def calls(trace: Trace, beside: Frame | None, fits: Callable[[ast.Call, str], bool]) -> list[Frame]:
    """The lines of the file of a frame that hold a call that fits.

    Args:
        trace: holds the text of the file, or this is empty.
        beside: of the program's own code; None: empty.
        fits: whether it is one, by the call and by how what is called is written.
    """
    if beside is None:
        return []
    lines = trace.source(beside.file)
    return [
        Frame(beside.file, node.lineno, function, False, lines[node.lineno - 1].strip())
        for function, node in with_functions(parsed(lines))
        if isinstance(node, ast.Call) and fits(node, ast.unparse(node.func))
    ]


def made_at(trace: Trace, call: Frame) -> Frame | None:
    """The one line that makes what a line calls ``step()`` of; None: none is seen, or several.

    Args:
        trace: holds the text of the file.
        call: the line that calls it.
    """
    lines = trace.source(call.file)
    nodes = list(with_functions(parsed(lines)))
    owners = {
        ast.unparse(node.func.value)
        for _, node in nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and (node.func.attr, node.lineno) == ("step", call.line)
    }
    found = [
        Frame(call.file, node.lineno, function, False, lines[node.lineno - 1].strip())
        for function, node in nodes
        if isinstance(node, ast.Assign) and owners & {ast.unparse(each) for each in node.targets}
    ]
    return found[0] if len(found) == 1 else None


_LOOKS: Final = frozenset({"abs", "data", "isfinite", "isnan", "mean", "norm", "std"})
"""What is asked of a gradient that is only looked at."""


def uses_gradients(trace: Trace, beside: Frame | None) -> bool:
    """Whether the file of a frame computes something of ``.grad``, besides figures to look at."""
    if beside is None:
        return False
    tree = parsed(trace.source(beside.file))
    looked_at = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and node.attr in _LOOKS
    }
    looked_at |= {id(node.left) for node in ast.walk(tree) if isinstance(node, ast.Compare)}
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == "grad"
        and isinstance(node.ctx, ast.Load)
        and id(node) not in looked_at
        for node in ast.walk(tree)
    )


def is_schedule(_call: ast.Call, name: str) -> bool:
    """Whether it is ``scheduler.step()``."""
    owner, _, method = name.rpartition(".")
    return method == "step" and any(
        word in owner.lower() for word in ("sched", "warmup", "decay", "plateau", "cosine")
    )


def is_clip(_call: ast.Call, name: str) -> bool:
    """Whether it is ``clip_grad_norm_`` or the like."""
    return "clip_grad" in name


def clips(trace: Trace, beside: Frame | None) -> list[tuple[Frame, float]]:
    """The calls of ``clip_grad_norm_`` in the file of a frame, with the norm where it is a number.

    Args:
        trace: holds the text of the file.
        beside: of the program's own code; None: empty.
    """
    limits: list[float] = []

    def fits(call: ast.Call, name: str) -> bool:
        given = {word.arg: word.value for word in call.keywords}.get("max_norm")
        limit = call.args[1] if len(call.args) > 1 else given
        number = limit.value if isinstance(limit, ast.Constant) else None
        if not name.endswith("clip_grad_norm_") or not isinstance(number, int | float):
            return False
        limits.append(float(number))
        return True

    return list(zip(calls(trace, beside, fits), limits, strict=True))


def is_clear(_call: ast.Call, name: str) -> bool:
    """Whether it is ``zero_grad``."""
    return name.endswith("zero_grad")


def is_new_scale(call: ast.Call, name: str) -> bool:
    """Whether it is ``scaler.update(...)`` with a scale."""
    owner, _, method = name.rpartition(".")
    return method == "update" and "scale" in owner.lower() and bool(call.args or call.keywords)
