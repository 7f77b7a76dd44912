"""Backward called many times for one optimizer step, where once would do."""

from __future__ import annotations

import ast
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agviz.analysis.code_search import called_name, tree_of
from agviz.analysis.program_calls import function_around, last_passes, looping_frame, ops_of_pass
from agviz.traces.rows import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame, GraphTaskRow

_LEAST_AGAIN: Final = 3
"""Calls of backward for one step that go through the same nodes."""
_TIMES_NEEDED: Final = 2
"""Times as many nodes as there are, that they run together."""
_LEAST_SAMPLES: Final = 8
_MOST_CALLS: Final = 256
"""Looked at, the last ones."""
_MOST_NODES: Final = 100_000
"""Of all these calls together."""
_READING: Final = frozenset(
    {"grad", "zero_grad", "step", "autograd", "grads", "clip_grad_norm_", "clip_grad_value_"}
)
"""Names that tell that a loop looks at each gradient by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedBackward:
    """Calls of backward by one line for one step."""

    frame: Frame | None
    calls: int
    """Of the line, for one step."""
    ran: int
    """Nodes that they ran together; 0: each sample had a graph of its own."""
    nodes: int
    """Different ones among them."""
    batch: int
    """Samples in the tensor that was cut up; 0: none was."""
    graph_task: None = None

    @property
    def heading(self) -> str:
        """How often it is called."""
        if self.ran:
            return (
                f"{self.calls:,} calls of backward for one optimizer step go through the same graph"
                f" again: {self.ran:,} nodes ran where there are {self.nodes:,}"
            )
        return (
            f"{self.calls:,} calls of backward for one optimizer step: one for each sample of a"
            f" batch of {self.batch:,}"
        )

    @property
    def paragraph(self) -> str:
        """What that costs, and what to do."""
        if self.ran:
            return (
                "Each call runs the part that the losses share once more, and the gradients are"
                " only added up. Add the losses first, and call backward once on the sum: the same"
                " gradients for one pass, and retain_graph=True is not needed."
            )
        return (
            "The samples are cut out of one tensor and go through the model one by one,"
            f" {self.calls:,} forward and backward passes where one would do; the gradients are"
            " only added up. Give the model the whole batch, or larger parts of it, and call"
            " backward on the mean of the losses. BatchNorm then sees the batch, too."
        )

    def details(self) -> Iterator[str]:
        """What the answer rests on, line by line."""
        yield f"{self.calls:,} calls at {self.frame} between two optimizer steps"

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "kind": "repeated_backward",
            "calls": self.calls,
            "ran": self.ran,
            "nodes": self.nodes,
            "batch": self.batch,
        }


def repeated_backward(trace: Trace) -> RepeatedBackward | None:
    """Calls of backward for the last step that could have been one.

    None: there are few, or the program seems to look at the gradients of each.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    tasks = _of_last_step(trace)
    if len(tasks) < _LEAST_AGAIN:
        return None
    call = trace.call_site(tasks[-1].id)
    frame = visible(call)
    alike = [task for task in tasks if visible(trace.call_site(task.id)) == frame]
    if len(alike) != len(tasks) or frame is None or _looks_at_each(trace, call):
        return None
    if sum(task.nodes for task in alike) > _MOST_NODES:
        return None
    return _through_the_same(trace, alike, frame) or _by_sample(trace, alike, frame)


def _of_last_step(trace: Trace) -> list[GraphTaskRow]:
    """Calls of backward between the last two steps that had any."""
    steps = sorted(set(trace.passes_before_steps().values()))
    if not steps:
        return []
    since = steps[-2] if len(steps) > 1 else -1
    return [
        task
        for task in last_passes(trace, _MOST_CALLS)
        if since < task.id <= steps[-1] and task.accumulate_grad and not task.create_graph
    ]


def _looks_at_each(trace: Trace, call: Sequence[Frame]) -> bool:
    """Whether the loop around a call, or what it calls on the way, may read each gradient."""
    found = looping_frame(trace, call)
    if found is None:
        return True
    _, loop, place = found
    functions = (function_around(trace, each) for each in call[place + 1 :] if not each.hidden)
    called = {called_name(each) for each in ast.walk(loop) if isinstance(each, ast.Call)}
    helpers = [
        node
        for node in ast.walk(tree_of(trace, found[0].file))
        if isinstance(node, ast.FunctionDef) and node.name in called - {"backward"}
    ]
    every = (loop, *functions, *helpers)
    return any(_names(each) & _READING for each in every if each is not None)


def _names(tree: ast.AST) -> set[str]:
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def _through_the_same(
    trace: Trace, tasks: Sequence[GraphTaskRow], frame: Frame
) -> RepeatedBackward | None:
    numbers = [trace.sequence_nrs(task.id) for task in tasks]
    ran, nodes = sum(map(len, numbers)), len(frozenset().union(*numbers))
    if ran < _TIMES_NEEDED * nodes:
        return None
    return RepeatedBackward(frame=frame, calls=len(tasks), ran=ran, nodes=nodes, batch=0)


def _by_sample(
    trace: Trace, tasks: Sequence[GraphTaskRow], frame: Frame
) -> RepeatedBackward | None:
    """Whether each call is for one sample of a tensor that held all of them."""
    if len(tasks) < _LEAST_SAMPLES or not trace.meta.check_forward:
        return None
    largest: dict[int, tuple[int, int]] = {}
    """Samples and numbers of the largest tensor of a memory that needs no gradient."""
    smallest: list[dict[int, int]] = []
    for task in tasks:
        of_pass: dict[int, int] = {}
        for op in ops_of_pass(trace, task.id):
            for tensor in (*op.inputs, *op.outputs):
                if tensor.requires_grad or not tensor.shape or tensor.memory < 0:
                    continue
                size = math.prod(tensor.shape)
                largest[tensor.memory] = max(
                    largest.get(tensor.memory, (0, 0)), (size, tensor.shape[0])
                )
                if tensor in op.inputs:
                    of_pass[tensor.memory] = min(of_pass.get(tensor.memory, size), size)
        smallest.append(of_pass)
    for memory, (size, samples) in largest.items():
        if samples >= len(tasks) and all(
            0 < each.get(memory, 0) <= size // samples for each in smallest
        ):
            return RepeatedBackward(frame=frame, calls=len(tasks), ran=0, nodes=0, batch=samples)
    return None
