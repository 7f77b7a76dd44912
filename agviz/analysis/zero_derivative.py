"""Derivatives that a loss is made of, and that are zero in each step.

Note [Zeros that are trained on]
``torch.autograd.grad(..., create_graph=True)`` is called for something that goes into a loss. Zeros
in a few steps are no fault: a layer that begins with zeros, a factor that warms up. So all that one
place in the program gets has to be zeros, in each step that is looked at, and nodes that the call
made have to be in the graph of the pass that trains. Zeros that the caller gives as gradient say
nothing: forward mode is made of two calls, the first of them with zeros.

Where zeros begin is known by the nodes that received something and put out zeros. If all of them
are double backwards of piecewise linear functions, no training changes it. Else it is said and not
judged.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.evidence import base_name
from agviz.analysis.gradient_flow import GradientFlow, GradientValue
from agviz.analysis.steps.finding import StepFinding, listed
from agviz.traces.rows import GraphTaskStatus, visible
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agviz.analysis.steps.run import RunSteps
    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame, GraphTaskRow, NodeRow

_LEAST_STEPS: Final = 4
_MOST_STEPS: Final = 24
"""Evenly spread, the first and the last among them."""
_MOST_CALLS: Final = 64
"""In one step."""
_MOST_NODES: Final = 20_000
_PIECEWISE: Final = {
    "HardshrinkBackward": "Hardshrink",
    "HardtanhBackward": "Hardtanh",
    "LeakyReluBackward": "LeakyReLU",
    "PreluKernelBackward": "PReLU",
    "RreluWithNoiseBackward": "RReLU",
    "SoftshrinkBackward": "Softshrink",
    "ThresholdBackward": "ReLU",
}
"""Functions whose second derivative is zero, by the nodes of their double backward."""


class _Call(NamedTuple):
    """One call of ``grad``, and the pass that trains next."""

    task: GraphTaskRow
    trains: int
    stack: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class _Zeros:
    """What one place in the program gets, zeros only."""

    calls: Sequence[_Call]
    frame: Frame | None
    begins: Sequence[NodeRow]
    """The nodes of the last call that received something and put out zeros."""
    modules: Sequence[str]
    """Whose functions these are of, as far as it is known."""

    @property
    def functions(self) -> list[str]:
        """The piecewise linear functions that it is of; empty: not only of these."""
        found = {_PIECEWISE.get(base_name(node.short_name)): None for node in self.begins}
        return [] if None in found else [*filter(None, found)]

    @property
    def count(self) -> str:
        """How many calls were looked at."""
        return plural(len(self.calls), "call")

    @property
    def evidence(self) -> tuple[str, ...]:
        """Where zeros begin, line by line."""
        last = self.calls[-1]
        return (
            *(
                f"in backward pass {last.task.id}, node {node.index} ({node.short_name}) receives"
                " something and puts out zeros"
                for node in self.begins
            ),
            f"nodes that it made are in the graph of backward pass {last.trains}",
        )


def second_derivatives(run: RunSteps) -> Iterator[StepFinding]:
    """Note [Zeros that are trained on]: of what is piecewise linear."""
    for zeros in _zeros(run.trace):
        if not zeros.functions:
            continue
        of = listed(zeros.functions)
        where = f" ({listed(zeros.modules)})" if zeros.modules else ""
        yield StepFinding(
            kind="piecewise linear",
            heading=f"torch.autograd.grad gives zeros only: the second derivative of {of} is zero",
            frame=zeros.frame,
            paragraph=(
                f"It was so in each of {zeros.count} that were looked at, and the loss is made of"
                f" that: it trains nothing there. What is built of {of}{where} is piecewise linear,"
                " and its second derivative is zero everywhere. Use tanh, SiLU or softplus where"
                " derivatives of higher order go into the loss."
            ),
            evidence=zeros.evidence,
        )
        return


def zero_derivative(trace: Trace) -> StepFinding | None:
    """Note [Zeros that are trained on]: where it may be meant; None: none is seen.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    if trace.meta.partial or trace.left_out:
        return None
    zeros = next(_zeros(trace), None)
    if zeros is None:
        return None
    begins = listed([_place(node) for node in zeros.begins])
    return StepFinding(
        kind="zero derivative",
        heading=f"torch.autograd.grad gives zeros only, in each of {zeros.count}",
        frame=zeros.frame,
        paragraph=(
            "They go into the loss, in each step that was looked at. Look whether the function"
            " depends on what it is differentiated by, and, for a second derivative, in more than a"
            f" straight line. Zeros begin at {begins}. If it is meant, leave it."
        ),
        evidence=zeros.evidence,
    )


def _place(node: NodeRow) -> str:
    return node.short_name if node.frame is None else f"{node.short_name} ({node.frame})"


def _zeros(trace: Trace) -> Iterator[_Zeros]:
    """Each place that gets zeros only and puts them into the loss, in the order of calls."""
    if trace.meta.values == "none":
        return
    places: defaultdict[tuple[Frame, ...], list[_Call]] = defaultdict(list)
    for call in _calls(trace):
        places[call.stack].append(call)
    for calls in places.values():
        for group, is_whole in _groups(calls):
            if len({call.trains for call in group}) < _LEAST_STEPS:
                continue
            if not all(_is_zero(trace, call) for call in reversed(group)):
                continue
            if not all(_is_trained_on(trace, call) for call in (group[0], group[-1])):
                continue
            flow = GradientFlow(trace, group[-1].task.id)
            begins = _begins(flow)
            found = _Zeros(group, _frame(calls, places.keys()), begins, _modules(flow, begins))
            if begins and (is_whole or found.functions):
                yield found


def _calls(trace: Trace) -> Iterator[_Call]:
    """The calls of ``grad`` with ``create_graph`` before passes of the run, evenly spread."""
    steps: list[list[GraphTaskRow]] = []
    trains: list[int] = []
    since: list[GraphTaskRow] = []
    for task in trace.graph_tasks.outermost:
        if task.accumulate_grad:
            if since:
                steps.append(since)
                trains.append(task.id)
            since = []
        elif task.create_graph and task.status is GraphTaskStatus.FINISHED and not task.traced:
            since.append(task)
    most = min(len(steps), _MOST_STEPS)
    for place in sorted({round(i * (len(steps) - 1) / max(most - 1, 1)) for i in range(most)}):
        for task in steps[place][:_MOST_CALLS]:
            if task.nodes <= _MOST_NODES:
                yield _Call(task, trains[place], trace.call_site(task.id))


def _groups(calls: Sequence[_Call]) -> Iterator[tuple[Sequence[_Call], bool]]:
    """All calls of a place; then those whose graphs have as many nodes, as of a loop over orders.

    Whether it is all of them is said, too.
    """
    yield calls, True
    by_nodes: defaultdict[int, list[_Call]] = defaultdict(list)
    for call in calls:
        by_nodes[call.task.nodes].append(call)
    if len(by_nodes) > 1:
        yield from ((group, False) for group in by_nodes.values())


def _is_zero(trace: Trace, call: _Call) -> bool:
    """Whether all that it gave was measured, and is zero."""
    results = trace.captures(call.task.id)
    if not results or len(results) < call.task.inputs:
        return False
    flow = GradientFlow(trace, call.task.id)
    for node, slot in results:
        row = flow.health(node, "captured", slot) or flow.input(node, slot)[1]
        if row is None or not 0 < row.numbers == row.zero:
            return False
    return True


def _is_trained_on(trace: Trace, call: _Call) -> bool:
    """Whether nodes that it made are in the graph of the pass that trains next."""
    if trace.graph_task(call.trains).nodes > _MOST_NODES:
        return False
    made = _shown(call.stack)
    before = max(trace.sequence_nrs(call.task.id), default=-1)
    return any(
        node.sequence_nr is not None and node.sequence_nr > before and _shown(node.stack) == made
        for node in trace.nodes(call.trains)
    )


def _shown(stack: Sequence[Frame]) -> list[Frame]:
    return [frame for frame in stack if not frame.hidden]


def _begins(flow: GradientFlow) -> list[NodeRow]:
    """The nodes that received something and put out zeros only, in one output at least."""
    flow.read_all()
    found = []
    for node in flow.nodes:
        outputs = {edge.output for edge in flow.trace.edges_from(flow.graph_task, node.index)}
        if (
            any(flow.output(node.index, each)[0] is GradientValue.ZERO for each in outputs)
            and any(value is GradientValue.SOME for value, _ in flow.inputs(node.index))
        ):  # fmt: skip
            found.append(node)
    return found


def _modules(flow: GradientFlow, begins: Sequence[NodeRow]) -> list[str]:
    """The modules whose functions were differentiated twice: zeros go on to their nodes."""
    below = (
        flow.nodes[edge.consumer]
        for node in begins
        for edge in flow.trace.edges_from(flow.graph_task, node.index)
        if flow.output(node.index, edge.output)[0] is GradientValue.ZERO
    )
    return [*dict.fromkeys(node.module for node in below if node.module)]


def _frame(calls: Sequence[_Call], places: Iterable[tuple[Frame, ...]]) -> Frame | None:
    """The innermost line that says which call is meant, as the one that calls a helper.

    No other place that ends in the same line shares it, or it calls a function several times.
    """
    own = _shown(calls[0].stack)
    others = [stack for each in places if (stack := _shown(each)) != own and stack[-1:] == own[-1:]]
    shared = {frame for stack in others for frame in stack}
    differing = next((frame for frame in reversed(own) if frame not in shared), None)
    if shared:
        return differing or visible(own)
    again = (
        caller for caller, called in pairwise(own) if caller.source.count(f"{called.function}(") > 1
    )
    return next(again, visible(own))
