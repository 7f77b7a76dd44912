"""Gates of an LSTM at the rim from the first pass on, where no node of their own shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.analysis.saturation.openness import SLOPES
from agviz.traces.forward import INSIDE

if TYPE_CHECKING:
    from agviz.analysis.saturation.reading import RunSaturation
    from agviz.measure.values import Health
    from agviz.traces.rows import ForwardOpRow

_SHUT: Final = 0.2
"""So far open, or less; those of an LSTM that starts as usual are nearly wide open."""
_MOST_OPS: Final = 20_000


class ShutGates(NamedTuple):
    """An LSTM whose gates are at the rim in all passes that were looked at."""

    op: ForwardOpRow
    """Its call in the last one."""
    graph_task: int
    open: float
    """The mean slope of its gates there, of the largest that they can have."""


def shut_gates(run: RunSaturation) -> ShutGates | None:
    """The first LSTM whose gates are at the rim before anything was learnt, and ever after.

    Args:
        run: what was read of the passes.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    if not run.passes:
        return None
    first, last = run.passes[0].graph_task, run.passes[-1].graph_task
    trace = run.trace
    is_first = not trace.passes_before(first) and not trace.optimizer_steps_before(first)
    if not is_first or run.is_learning(first):
        return None
    shut: dict[tuple[str | None, str | None], ShutGates] | None = None
    for task in dict.fromkeys((first, last)):
        found = {
            (op.module, op.line): ShutGates(op, task, far)
            for op in trace.forward_ops(task, limit=_MOST_OPS)
            for row in op.outputs
            if row.place == INSIDE and row.health is not None
            if (far := _openness(row.health)) is not None and far <= _SHUT
        }
        shut = found if shut is None else {key: found[key] for key in found if key in shut}
    return next(iter(shut.values()), None) if shut else None


def _openness(gates: Health) -> float | None:
    """The mean slope s (1 - s) of sigmoids, over the largest; None: not measured, or not finite."""
    if not gates.numbers or gates.mean is None or gates.norm is None or not gates.is_finite:
        return None
    mean_slope = gates.mean - gates.norm**2 / gates.numbers
    return max(0.0, mean_slope) / SLOPES["sigmoid"]
