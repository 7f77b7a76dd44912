"""A node in words: its name, where it belongs, the line that made it; and a backward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agviz.analysis.coverage import coverage
from agviz.words.labels import of_owner
from agviz.words.units import ordinal, plural

if TYPE_CHECKING:
    from agviz.traces.reader import Trace
    from agviz.traces.rows import NodeRow


def place(node: NodeRow) -> str:
    """``MulBackward0 of encoder.norm``, ``AccumulateGrad of head.weight``, ``MulBackward0``."""
    where = node.parameter or node.module
    return of_owner(node.short_name, where)


def made_at(node: NodeRow) -> str:
    """`` (made at model.py:12 in forward)``; empty where that was not recorded."""
    return "" if node.line is None else f" (made at {node.line})"


def described(node: NodeRow) -> str:
    """Both, with the node's number."""
    line = "" if node.line is None else f", made at {node.line}"
    return f"{place(node)} (node {node.index}{line})"


def backward_pass(trace: Trace, graph_task: int) -> str:
    """``backward pass 30 (the 31st of 40, after 30 optimizer steps)``; by its outermost one.

    Raises:
        agviz.errors.TraceError: there is no such graph task, or the file is damaged.
    """
    trace.graph_task(graph_task)
    number = trace.graph_tasks.root(graph_task)
    count = coverage(trace).recorded
    which = f"the {ordinal(trace.passes_before(number) + 1)} of {count:,}"
    if count == 1:
        which = "the only one"
    recorded = " recorded" if trace.meta.choice else ""
    steps = trace.optimizer_steps_before(number)
    after = f", after {plural(steps, 'optimizer step')}" if steps else ""
    return f"backward pass {number} ({which}{recorded}{after})"
