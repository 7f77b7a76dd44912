"""Loops that call backward again and again without coming any nearer to their end.

Note [No progress]
A ``while`` whose last turns all gave one and the same loss, to the last digit, is told while the
program runs; so is one that calls no backward, and whose torch functions gave the same numbers. A
loop that counts its turns, and may end by that, is training whose loss is constant, and is left
alone.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agviz.analysis.code_search import called_name, tree_of, user_files
from agviz.analysis.measures import number
from agviz.analysis.program_calls import last_passes, looping_frame
from agviz.traces.rows import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame

_LEAST: Final = 200
"""Passes with the same loss."""
_LEAST_TURNS: Final = 50
"""Turns without backward whose functions gave the same."""
_MOST_OPS: Final = 4_000
"""Functions that are looked at, the last ones."""
_OTHERS: Final = frozenset(
    {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "process_time", "now"}
    | {"done", "empty", "exists", "is_alive", "is_file", "is_set", "poll", "qsize"}
)
"""Functions that give something else though a loop changes nothing."""
_LONGEST: Final = 80
"""Letters of a condition that are shown."""
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoProgress:
    """A loop that calls backward with the same loss again and again. Note [No progress]."""

    frame: Frame
    """The line that lets it end, else that of the loop."""
    loop: int
    """The line of the loop."""
    called: Frame
    """The line of the loop that leads to backward, or calls such a function."""
    loss: float | None
    """None: it calls no backward."""
    ends: str
    """What has to be true for it to end; empty: not one condition."""
    turns: int
    """Passes with the same loss that were looked at."""
    graph_task: int
    """The last of them, or the last one before the loop; -1: there was none."""

    @property
    def heading(self) -> str:
        """What it does."""
        if self.loss is None:
            return "a loop calls the same functions again and again, with the same results"
        return f"a loop calls backward again and again, and its loss stays {number(self.loss)}"

    @property
    def paragraph(self) -> str:
        """How it would end, and what to do."""
        ends = f" It ends only where {self.ends} (line {self.frame.line})." if self.ends else ""
        said = (
            f"The while loop in line {self.loop} calls backward at {self.called}. The last"
            f" {self.turns:,} passes had the same loss"
        )
        if self.loss is None:
            said = (
                f"The while loop in line {self.loop} calls no backward. In its last {self.turns:,}"
                f" turns, torch functions, as at {self.called}, gave the same numbers"
            )
        return (
            f"{said} to the last digit, so that nothing they changed made a difference.{ends}"
            " Unless something else changes, it never ends: look at what each turn changes (its"
            " sign, or a step too small to move a parameter), and give the loop a largest number of"
            " turns."
        )

    def details(self) -> Iterator[str]:
        """What the answer rests on, line by line."""
        if self.loss is not None:
            yield f"loss of the last {self.turns:,} passes, up to {self.graph_task}: {self.loss!r}"

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "kind": "no_progress",
            "graph_task": self.graph_task,
            "loop": self.loop,
            "called": str(self.called),
            "passes": self.turns,
        }


def no_progress(trace: Trace) -> NoProgress | None:
    """The loop in which a running program is without progress; None: it is not seen in one.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    if not trace.is_growing:
        return None
    return _of_passes(trace) or _of_functions(trace)


def _of_passes(trace: Trace) -> NoProgress | None:
    tasks = last_passes(trace, _LEAST)
    known = trace.losses()
    losses = {repr(known[task.id]) for task in tasks if task.id in known}
    sites = {visible(trace.call_site(task.id)) for task in tasks}
    if len(tasks) < _LEAST or len(losses) != 1 or len(sites) != 1 or tasks[-1].id not in known:
        return None
    last = tasks[-1].id
    return _looping(trace, trace.call_site(last), known[last], len(tasks), last)


def _of_functions(trace: Trace) -> NoProgress | None:
    """A loop of functions since the last pass, whose turns are alike in all that they gave."""
    ops = trace.last_forward_ops(_MOST_OPS) if trace.meta.check_forward else []
    since = [op for op in ops if op.graph_task == -1 and op.thread == ops[-1].thread]
    if not since or since[-1] is not ops[-1]:
        return None
    turns = [(op.name, op.stack, [row.health for row in op.outputs]) for op in since]
    for length in range(1, len(turns) // _LEAST_TURNS + 1):
        tail = turns[-length * _LEAST_TURNS :]
        if tail[length:] == tail[:-length]:
            last = max(trace.graph_tasks.outermost.ids, default=-1)
            is_measured = any(health for *_, gave in tail[:length] for health in gave)
            loops = (_looping(trace, op.stack, None, _LEAST_TURNS, last) for op in since[-length:])
            return next(filter(None, loops), None) if is_measured else None
    return None


def _looping(
    trace: Trace, stack: Sequence[Frame], loss: float | None, turns: int, graph_task: int
) -> NoProgress | None:
    """The endless ``while`` around the innermost line of a stack that is in one."""
    found = looping_frame(trace, stack)
    if found is None:
        return None
    called, loop, _ = found
    if not isinstance(loop, ast.While):
        return None
    tests = list(_exits(loop))
    if not tests or any(_counts(loop, test) or _is_computed(trace, test) for test in tests):
        return None
    text = ast.unparse(tests[0])
    ends = text if loop.test is not tests[0] else f"not ({text})"
    if loop.test is tests[0] and isinstance(loop.test, ast.UnaryOp):
        ends = ast.unparse(loop.test.operand)
    line = tests[0].lineno if len(tests) == 1 else loop.lineno
    return NoProgress(
        frame=called._replace(line=line, source=""),
        loop=loop.lineno,
        called=called,
        loss=loss,
        ends=ends if len(tests) == 1 and len(ends) <= _LONGEST else "",
        turns=turns,
        graph_task=graph_task,
    )


def _exits(loop: ast.While) -> Iterator[ast.expr]:
    """The conditions by which a loop ends: its own, and those of what leaves it."""
    if not isinstance(loop.test, ast.Constant):
        yield loop.test
    waiting: list[ast.AST] = list(loop.body)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, _FUNCTIONS):
            continue
        if isinstance(node, ast.If) and any(map(_leaves, [*node.body, *node.orelse])):
            yield node.test
        waiting += ast.iter_child_nodes(node)


def _leaves(node: ast.stmt) -> bool:
    return isinstance(node, ast.Break | ast.Return | ast.Raise)


def _counts(loop: ast.While, test: ast.expr) -> bool:
    """Whether a condition asks for what the loop counts, or for the time or another thread."""
    calls = (node for node in ast.walk(test) if isinstance(node, ast.Call))
    if any(called_name(call) in _OTHERS for call in calls):
        return True
    counted = {
        ast.unparse(node.target)
        for node in ast.walk(loop)
        if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add | ast.Sub)
    }
    asked = {
        ast.unparse(node) for node in ast.walk(test) if isinstance(node, ast.Name | ast.Attribute)
    }
    return bool(counted & asked)


def _is_computed(trace: Trace, test: ast.expr) -> bool:
    """Whether a condition reads a property of the program's: that may ask for the time."""
    asked = {node.attr for node in ast.walk(test) if isinstance(node, ast.Attribute)}
    return any(
        isinstance(node, ast.FunctionDef) and node.name in asked and node.decorator_list
        for file in user_files(trace)
        for node in ast.walk(tree_of(trace, file))
    )
