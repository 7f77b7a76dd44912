"""The same computation again and again in one pass: same functions, same tensors, same results."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agviz.analysis.program_calls import last_passes, looping_frame, ops_of_pass

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.traces.reader import Trace
    from agviz.traces.rows import ForwardOpRow, ForwardTensorRow, Frame

_LEAST_TIMES: Final = 4
_SHARE: Final = 0.4
"""Of all numbers that functions made for the pass, that are made needlessly."""
_PARAMETRIZE: Final = "torch/nn/utils/parametrize.py"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepeatedCalls:
    """What is computed anew each time, though it gives the same."""

    graph_task: int
    frame: Frame | None
    """The line in a loop that leads to it."""
    computed: Frame | None
    """The line of the first of the functions."""
    name: str
    """Of that function."""
    times: int
    share: float
    """Of all numbers that functions made for the pass."""
    has_nodes: bool
    is_parametrized: bool
    """Whether it is a parametrization that computes it."""

    @property
    def heading(self) -> str:
        """What is computed how often."""
        return (
            f"the same is computed {self.times:,} times for backward pass {self.graph_task}:"
            f" {self.name} of the same tensors"
        )

    @property
    def paragraph(self) -> str:
        """What that costs, and what to do."""
        is_shown = self.computed is None or self.computed == self.frame
        at = "" if is_shown else f" The functions are called at {self.computed}."
        told = (
            f"Each time it gives the same numbers, {self.share:.0%} of all that the forward"
            f" makes{', and backward goes through each' if self.has_nodes else ''}.{at} "
        )
        if self.is_parametrized:
            return told + (
                "A parametrized parameter is computed at each access: put the loop into `with"
                " torch.nn.utils.parametrize.cached():`."
            )
        return told + "Compute it once, before the loop, and use the result in it."

    def details(self) -> Iterator[str]:
        """What the answer rests on, line by line."""
        yield f"{self.name} at {self.computed}: {self.times:,} times in pass {self.graph_task}"

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "kind": "repeated_calls",
            "graph_task": self.graph_task,
            "name": self.name,
            "computed": None if self.computed is None else str(self.computed),
            "times": self.times,
            "share": self.share,
        }


def repeated_calls(trace: Trace) -> RepeatedCalls | None:
    """Functions that made most of the last pass's numbers again and again.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    if not trace.meta.check_forward:
        return None
    for task in last_passes(trace, 1):
        found = _repeated(trace, task.id)
        if found is not None:
            return found
    return None


def _repeated(trace: Trace, graph_task: int) -> RepeatedCalls | None:
    # What runs under no_grad, as a solver does, is no part of what the pass goes through.
    ops = [
        op
        for op in ops_of_pass(trace, graph_task)
        if op.recomputed_in < 0 and not op.error and op.grad_enabled
    ]
    times: Counter[object] = Counter()
    first: dict[object, ForwardOpRow] = {}
    same: dict[tuple[int, int | None], tuple[int, int | None]] = {}
    """The first tensor that held the same numbers, by tensor and version."""
    numbers: Counter[object] = Counter()
    total = 0
    for op in ops:
        made = sum(map(_numbers, op.outputs)) if _is_new(op) else 0
        total += made
        given = [same.get(each, each) for each in map(_value, op.inputs)]
        key = op.name, op.arguments, op.stack, tuple(given)
        known = first.setdefault(key, op)
        if known is not op and _are_equal(known.outputs, op.outputs):
            same |= zip(map(_value, op.outputs), map(_value, known.outputs), strict=True)
        elif known is not op:
            continue
        if given:
            times[key] += 1
            numbers[key] += made if known is not op else 0
    often = [each for each, count in times.items() if count >= _LEAST_TIMES]
    if not often:
        return None
    by_line: Counter[int] = Counter()
    for each in often:
        by_line[times[each]] += numbers[each]
    count, needless = by_line.most_common(1)[0]
    if needless < _SHARE * total:
        return None
    op = next(first[each] for each in often if times[each] == count)
    in_loop = looping_frame(trace, op.stack)
    return RepeatedCalls(
        graph_task=graph_task,
        frame=op.frame if in_loop is None else in_loop[0],
        computed=op.frame,
        name=op.name,
        times=count,
        share=needless / total,
        has_nodes=op.sequence_nr is not None,
        is_parametrized=any(
            frame.file.replace("\\", "/").endswith(_PARAMETRIZE) for frame in op.stack
        ),
    )


def _is_new(op: ForwardOpRow) -> bool:
    """Whether it gave back memory of its own: no view, and nothing that it was given."""
    return {each.memory for each in op.outputs}.isdisjoint(each.memory for each in op.inputs)


def _value(tensor: ForwardTensorRow) -> tuple[int, int | None]:
    return tensor.tensor, tensor.version


def _numbers(tensor: ForwardTensorRow) -> int:
    return math.prod(tensor.shape or ())


def _are_equal(some: Sequence[ForwardTensorRow], others: Sequence[ForwardTensorRow]) -> bool:
    return len(some) == len(others) and all(
        one.health is not None and one.health == other.health and one.shape == other.shape
        for one, other in zip(some, others, strict=True)
    )
