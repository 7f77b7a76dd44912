"""What the program itself wrote in place into parameters, buffers and gradients.

Only with ``check_forward``, which records torch functions that are called between passes, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.analysis.measures import bad

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agviz.traces.reader import Trace
    from agviz.traces.rows import ForwardOpRow, ForwardTensorRow

_MOST_READ: Final = 2_000


def written(op: ForwardOpRow) -> Iterator[ForwardTensorRow]:
    """What a function in place was given and changed, as it was afterwards; else nothing."""
    if not op.name.endswith("_"):
        return
    before = {row.tensor: row.version for row in op.inputs}
    for row in op.outputs:
        if row.tensor in before and row.version != before[row.tensor]:
            yield row


def nonfinite_write(
    trace: Trace,
    fits: Callable[[ForwardOpRow, ForwardTensorRow], bool],
    graph_task: int | None = None,
) -> ForwardOpRow | None:
    """The first function in place that put NaN or infinities into a tensor that fits.

    Args:
        trace: the recording.
        fits: whether a tensor that a function wrote is one that is asked about.
        graph_task: only since the one before it; None: at any time.

    Returns:
        None: there is none, it was given something non-finite by an earlier one, or the functions
        of the program were not recorded.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    for op in trace.forward_nonfinite(graph_task, limit=_MOST_READ):
        found = next((row for row in written(op) if bad(row.health) and fits(op, row)), None)
        if found is not None:
            given = next(row for row in op.inputs if row.tensor == found.tensor)
            return None if bad(given.health) else op
    return None


def memories_of_parameters(trace: Trace, names: Sequence[str]) -> set[int]:
    """The numbers of the storages of parameters, as far as functions took them."""
    return {
        row.memory
        for op in trace.forward_ops(limit=_MOST_READ)
        for row in op.inputs
        if row.parameter in names and row.memory >= 0
    }


def memories_of_buffers(trace: Trace, module: str) -> set[int]:
    """The numbers of the storages of what a batch norm took, without its parameters and input."""
    return {
        row.memory
        for op in trace.forward_ops(limit=_MOST_READ)
        if op.module == module and op.name.endswith("batch_norm")
        for row in op.inputs[1:]
        if not row.parameter and row.memory >= 0
    }
