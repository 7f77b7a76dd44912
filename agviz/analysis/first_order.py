"""Gradients that go back through an inner step whose derivative has no graph: of first order only.

Note [Inner steps]
``weight - rate * grad`` is a step; where the graph of a loss holds that difference, a gradient goes
on to ``weight`` as if the derivative were a constant. Of MAML that leaves the second derivatives
out. Who means that (FOMAML, Reptile) may write it in the same way, so it is said and not judged;
where the program detaches the derivative, or steps under ``no_grad``, it has been said there. A
derivative is recognised by what was measured of it: it was made by no function of the forward, and
the pass before put out the very same numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.lineage import last_name
from agviz.analysis.program_calls import ops_of_pass
from agviz.analysis.steps.finding import StepFinding
from agviz.traces.rows import GraphTaskStatus

if TYPE_CHECKING:
    from agviz.measure.values import Health
    from agviz.traces.reader import Trace
    from agviz.traces.rows import ForwardOpRow, GraphTaskRow

_SCALING: Final = frozenset({"__mul__", "__rmul__", "__neg__", "div", "mul", "multiply", "neg"})
_STEPPING: Final = frozenset({"__add__", "__sub__", "add", "sub", "subtract"})
_PASSES: Final = 2
_MOST_TASKS: Final = 100
"""Inner ones of one pass."""
_MOST_NODES: Final = 20_000


class _Step(NamedTuple):
    op: ForwardOpRow
    parameter: str
    inner: int
    """The call that gave the derivative."""


def first_order(trace: Trace) -> StepFinding | None:
    """A step without second derivatives that one of the last passes goes through; None: none is.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    if not trace.meta.check_forward:
        return None
    outermost = trace.graph_tasks.outermost
    for outer in list(outermost.accumulating)[: -_PASSES - 1 : -1]:
        if outer.nodes > _MOST_NODES or outer.status is not GraphTaskStatus.FINISHED:
            continue
        before = [each for each in outermost if each.id < outer.id]
        inner: list[GraphTaskRow] = []
        while before and not before[-1].accumulate_grad and len(inner) < _MOST_TASKS:
            inner.append(before.pop())
        for each in inner:
            step = None if each.create_graph else _step(trace, each, outer)
            if step is not None:
                return _finding(trace, step, outer)
    return None


def _step(trace: Trace, inner: GraphTaskRow, outer: GraphTaskRow) -> _Step | None:
    """A step with what an inner call gave, in the graph of the outer one."""
    after = next(each.id for each in trace.graph_tasks.outermost if each.id > inner.id)
    ops = ops_of_pass(trace, after)
    if not any(last_name(op) in _STEPPING for op in ops):
        return None
    gave = {
        (row.numbers, row.min, row.max, row.norm)
        for row in trace.health(inner.id)
        if row.numbers and row.role != "root"
    }
    numbers = trace.sequence_nrs(outer.id)
    derived: set[int] = set()
    made: set[int] = set()
    for op in ops:
        name = last_name(op)
        for row in op.inputs:
            if row.tensor not in made and not row.requires_grad and _is_one(row.health, gave):
                derived.add(row.tensor)
        made.update(row.tensor for row in op.outputs)
        taken = [row for row in op.inputs if row.tensor in derived]
        if not taken or op.error or not op.grad_enabled:
            continue
        others = [row for row in op.inputs if row.tensor not in derived]
        if name in _SCALING:
            derived.update(row.tensor for row in op.outputs)
        elif name in _STEPPING and len(taken) == len(others) == 1:
            (weight,) = others
            is_step = weight.is_leaf and weight.requires_grad
            if is_step and weight.shape == taken[0].shape and op.sequence_nr in numbers:
                return _Step(op, weight.parameter or "a leaf", inner.id)
    return None


def _is_one(
    health: Health | None, gave: set[tuple[int, float | None, float | None, float | None]]
) -> bool:
    return (
        health is not None
        and health.norm is not None
        and health.norm > 0
        and (health.numbers, health.min, health.max, health.norm) in gave
    )


def _finding(trace: Trace, step: _Step, outer: GraphTaskRow) -> StepFinding:
    shown = [frame for frame in reversed(trace.call_site(step.inner)) if not frame.hidden]
    at = shown[0] if shown else step.op.frame
    whence = f" (called at {shown[1]})" if len(shown) > 1 else ""
    return StepFinding(
        kind="first order",
        heading=f"the gradient of {step.parameter} leaves second derivatives out",
        frame=at,
        paragraph=(
            f"What grad gave here{whence} has no graph (create_graph=False), and {step.op.line}"
            f" makes a step of {step.parameter} with it. Backward pass {outer.id} goes back through"
            f" that step, to {step.parameter}, as if the inner derivative were a constant: of"
            " MAML, the gradient is that of first order. Give create_graph=True for all of it; if"
            " first order is meant, write grad.detach()."
        ),
    )
