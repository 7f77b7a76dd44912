"""Calls of backward that torch refused before a pass began: no graph, no scalar, no such input."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agviz.analysis.code_search import tree_of
from agviz.analysis.coverage import ALL_PASSES
from agviz.traces.rows import visible
from agviz_engine.events import LEFT_OUT, NO_GRAPH_TASK

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.traces.reader import Trace
    from agviz.traces.rows import ForwardOpRow, Frame

_NO_GRAPH: Final = "does not require grad and does not have a grad_fn"
_NOT_SCALAR: Final = "grad can be implicitly created only for scalar outputs"
_DOOR: Final = "torch/autograd/__init__.py"
"""The file of torch that refuses a call before the engine is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedCall:
    """A call of backward or grad that torch refused."""

    graph_task: int | None
    """The last pass that had begun before; None: there was none."""
    error: str
    """Type of the exception."""
    message: str
    call: Frame | None
    """The line of the call."""
    grad_enabled: bool | None = None
    """Whether gradients were on at the call; None: that is not known."""
    disabled: Frame | None = None
    """The line that had turned them off."""
    cut: ForwardOpRow | None = None
    """The last function of the recorded forward that took what requires a gradient and gave what
    does not; None: there is none, or the forward was not recorded."""
    beside: ForwardOpRow | None = None
    """The last one whose result has a graph, without the leaves that were cut, and is not in the
    loss; None: there is none."""
    graphless: Frame | None = None
    """The line of ``autograd.grad`` without ``create_graph``, where that was the pass before."""
    block: str = ""
    """What decides whether gradients are on in the block that turned them off; empty: nothing."""
    suspended: Frame | None = None
    """The ``yield`` at which a generator waits that has turned gradients off, and is not called."""
    is_recorded: bool
    """Whether the forward was recorded."""
    count: int = 1
    """How many calls were refused in all."""
    is_left_out: bool = False
    """Whether it was a pass that began, and was not to be recorded: ``graph_task``."""

    @property
    def frame(self) -> Frame | None:
        """The line to look at: where gradients were turned off, the graph was cut, or the call."""
        if self.disabled is not None:
            return self.disabled
        return (None if self.cut is None or self.beside else self.cut.frame) or self.call

    @property
    def heading(self) -> str:
        """What was refused, and why."""
        if self.is_left_out:
            return f"backward pass {self.graph_task}, which was not recorded, raised {self.error}"
        after = "" if self.graph_task is None else f" after backward pass {self.graph_task}"
        return f"a call of backward{after} was refused: {self._why()}"

    def _why(self) -> str:
        if _NO_GRAPH in self.message:
            if self.grad_enabled is False:
                at = "" if self.disabled is None else f" from {self.disabled}"
                return f"no graph: gradients were off{at}"
            if self.cut is not None and self.beside is None:
                return f"no graph: it was cut at {self.cut.line}"
            return "no graph: the loss requires no gradient"
        if _NOT_SCALAR in self.message:
            return "the loss is no scalar"
        return self.error

    @property
    def paragraph(self) -> str:
        """What torch said, and what to do."""
        return " ".join(self._sentences())

    def _sentences(self) -> Iterator[str]:
        call = "" if self.call is None else f" at {self.call}"
        said = " ".join(self.message.split())
        yield f"It was called{call}; torch said: {(said or self.error).removesuffix('.')}."
        if self.is_left_out:
            yield (
                f"So many passes came before it that only some were recorded; {ALL_PASSES} records"
                " all, and names the node and the line of the forward that it failed for."
            )
        if _NO_GRAPH in self.message:
            yield from self._about_no_graph()
        elif _NOT_SCALAR in self.message:
            yield "Reduce it, by mean() or sum(), or give backward the gradient of each element."
        if self.count > 1:
            yield f"{self.count:,} calls were refused in all."

    def _about_no_graph(self) -> Iterator[str]:
        if self.grad_enabled is False:
            if self.disabled is None:
                yield "Gradients were off; which line turned them off is not known."
            if self.suspended is not None:
                yield (
                    f"{self.suspended.function} is a generator, which waits at its yield"
                    f" ({self.suspended}) inside of that block: until it goes on, gradients are off"
                    " for everybody. Leave the block before yield."
                )
                return
            if self.block:
                yield (
                    f"They are off in this block where {self.block} is false: look at what sets"
                    " it, as eval() without train() after it."
                )
                return
            yield (
                "set_grad_enabled(False) stays until it is undone; `with torch.no_grad():` ends by"
                " itself."
            )
        elif self.cut is not None:
            off = "" if self.cut.grad_enabled else ", under no_grad"
            at = "" if self.beside is None or self.cut.line is None else f" at {self.cut.line}"
            yield f"{self.cut.name}{at} took what requires a gradient and gave what does not{off}."
            if self.beside is not None:
                yield (
                    f"But what {self.beside.name} gave at {self.beside.line} still requires one, of"
                    " other parameters, and is not in the loss: look which of both it is meant to"
                    " be made of."
                )
        elif self.graphless is not None:
            yield (
                f"The pass before was autograd.grad at {self.graphless}, without create_graph=True:"
                " what is computed of its gradients alone has no graph. Give it create_graph=True"
                " if the loss is made of them."
            )
        else:
            yield (
                "Gradients were on at the call: the loss was computed while they were off, went"
                " through detach() or item(), or nothing that it is made of requires a gradient."
            )
            if not self.is_recorded:
                yield "Record with --check-forward to learn which line cut it off."

    def details(self) -> Iterator[str]:
        """What the answer rests on, line by line."""
        if self.grad_enabled is not None:
            yield f"gradients were {'on' if self.grad_enabled else 'off'} at the call"
        if self.disabled is not None:
            yield f"turned off at {self.disabled}"

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "kind": "refused",
            "after_graph_task": self.graph_task,
            "error": self.error,
            "message": self.message,
            "called_at": None if self.call is None else str(self.call),
            "grad_enabled": self.grad_enabled,
            "disabled_at": None if self.disabled is None else str(self.disabled),
            "cut_at": None if self.cut is None else self.cut.line,
            "line": None if self.frame is None else str(self.frame),
            "calls": self.count,
        }


def refused(trace: Trace) -> RefusedCall | None:
    """The last call that torch refused; None: there is none in the trace.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    calls = [call for call in trace.native_calls() if call.error]
    is_recorded = trace.meta.check_forward
    if calls:
        last = calls[-1]
        cut, beside = _cut(trace, visible(last.stack)) if last.grad_enabled else (None, None)
        return RefusedCall(
            graph_task=None if last.graph_task == NO_GRAPH_TASK else last.graph_task,
            error=last.error,
            message=last.message,
            call=visible(last.stack),
            grad_enabled=last.grad_enabled,
            disabled=(disabled := visible(last.disabled)),
            block=_block(trace, disabled),
            suspended=_suspended(trace, disabled, last.stack),
            cut=cut,
            beside=beside,
            graphless=_graphless(trace, last.graph_task) if last.grad_enabled else None,
            is_recorded=is_recorded,
            count=len(calls),
            is_left_out=last.reason == LEFT_OUT,
        )
    return _by_python(trace)


def _by_python(trace: Trace) -> RefusedCall | None:
    """The call that ended the program, where torch's Python code refused it."""
    dump = trace.raised(NO_GRAPH_TASK)
    if dump is None or not dump.threads or not dump.threads[0].stack:
        return None
    stack = dump.threads[0].stack
    error, _, message = trace.meta.ended.partition(": ")
    has_begun = any(task.message == message for task in trace.graph_tasks.unfinished)
    if has_begun or not stack[-1].file.endswith(_DOOR):
        return None
    last = max(trace.graph_tasks.ids, default=None)
    return RefusedCall(
        graph_task=last,
        error=error,
        message=message,
        call=visible(stack),
        is_recorded=trace.meta.check_forward,
    )


def _block(trace: Trace, disabled: Frame | None) -> str:
    """``x`` of the line ``with torch.set_grad_enabled(x):``; empty: it is none."""
    nodes = () if disabled is None else ast.walk(tree_of(trace, disabled.file))
    found = (
        ast.unparse(item.context_expr)
        for node in nodes
        if disabled is not None and isinstance(node, ast.With) and node.lineno == disabled.line
        for item in node.items
    )
    matches = (re.search(r"set_grad_enabled\((?!False\))(.+)\)$", text) for text in found)
    return next((match[1] for match in matches if match), "")


def _suspended(trace: Trace, disabled: Frame | None, stack: Sequence[Frame]) -> Frame | None:
    """The ``yield`` in the block that turned gradients off, where its function is not running."""
    if disabled is None or any(
        (frame.file, frame.function) == (disabled.file, disabled.function) for frame in stack
    ):
        return None
    found = [
        inner.lineno
        for node in ast.walk(tree_of(trace, disabled.file))
        if isinstance(node, ast.With) and node.lineno == disabled.line
        for inner in ast.walk(node)
        if isinstance(inner, ast.Yield)
    ]
    return disabled._replace(line=found[0], source="") if found else None


def _graphless(trace: Trace, graph_task: int) -> Frame | None:
    """The line of a call of ``autograd.grad`` whose gradients have no graph; None: it is none."""
    task = trace.graph_tasks.get(graph_task)
    if task is None or task.accumulate_grad or task.create_graph or task.inputs < 1:
        return None
    return visible(trace.call_site(graph_task))


def _cut(trace: Trace, call: Frame | None) -> tuple[ForwardOpRow | None, ForwardOpRow | None]:
    """The last function since the last pass that lost the graph, of those that made the loss.

    Where it is not known which did, of all: a metric beside it has no graph either. Besides, the
    last function whose result still has a graph, of other leaves than were cut, and made no part of
    the loss.
    """
    ops = trace.forward_ops(NO_GRAPH_TASK)
    behind = _behind_loss(trace, call, ops)
    for op in reversed(behind or ops):
        tensors = [row for row in op.outputs if not row.is_leaf or not row.requires_grad]
        is_lost = bool(tensors) and not any(row.requires_grad for row in op.outputs)
        if is_lost and any(row.requires_grad for row in op.inputs):
            return op, _beside(ops, {each.id for each in behind}, op) if behind else None
    return None, None


def _beside(
    ops: Sequence[ForwardOpRow], behind: set[int], cut: ForwardOpRow
) -> ForwardOpRow | None:
    """The last function whose result has a graph without what was cut, and is not in the loss."""
    wanted = {row.tensor for row in cut.inputs}
    lost: set[int] = set()
    for op in reversed(ops):
        if op.id == cut.id or not wanted.isdisjoint(row.tensor for row in op.outputs):
            wanted |= {row.tensor for row in op.inputs}
            lost |= {row.tensor for row in op.inputs if row.is_leaf and row.requires_grad}
    found = None
    for op in ops:
        if not lost.isdisjoint(row.tensor for row in op.inputs):
            lost |= {row.tensor for row in op.outputs}
        elif op.id not in behind and any(row.requires_grad for row in op.outputs):
            found = op
    return found


def _behind_loss(
    trace: Trace, call: Frame | None, ops: Sequence[ForwardOpRow]
) -> list[ForwardOpRow]:
    """The functions that made the variable that backward was called on, in order; empty: not known.

    What is on the line of the call counts, and what gives their values to the names there.
    """
    if call is None:
        return []
    statements = list(ast.walk(tree_of(trace, call.file)))
    called = [
        node.func.value
        for node in statements
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and (node.func.attr, node.lineno) == ("backward", call.line)
    ]
    names = {name.id for value in called for name in ast.walk(value) if isinstance(name, ast.Name)}
    giving: list[ast.stmt | ast.expr] = [
        node
        for node in statements
        if isinstance(node, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id in names for target in node.targets)
    ]
    lines = {
        line
        for node in giving + called
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    found: list[ForwardOpRow] = []
    wanted: set[int] = set()
    for op in reversed(ops):
        made = {row.tensor for row in op.outputs}
        is_loss = any(
            (frame.file, frame.function) == (call.file, call.function) and frame.line in lines
            for frame in op.stack
        )
        is_loss &= not any(row.requires_grad for row in op.outputs)
        if made and (is_loss or made & wanted):
            found.append(op)
            wanted |= {row.tensor for row in op.inputs}
    return found[::-1]
