"""Why a backward pass did not come to its end: it raised, it hangs, or it was cut off."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from agviz.analysis.hang import Hang, hang
from agviz.analysis.raised import exception, raised
from agviz.analysis.version_errors import version_error
from agviz.traces.rows import GraphTaskStatus

if TYPE_CHECKING:
    from agviz.analysis.backward_twice import BackwardTwice
    from agviz.analysis.modified import InplaceModification
    from agviz.analysis.raised import RaisedException
    from agviz.traces.reader import Trace
    from agviz.traces.rows import GraphTaskRow

Failure: TypeAlias = "InplaceModification | BackwardTwice | RaisedException | Hang"


def failure(trace: Trace, graph_task: int | None = None) -> Failure | None:
    """Why calls of backward or grad failed, or what holds those that have not ended.

    Args:
        trace: the trace.
        graph_task: the one that is asked about; None: what has not ended, else the last that
            raised.

    Raises:
        agviz.errors.TraceError: there is no such graph task, or the file is damaged.
    """
    found = hang(trace)
    if graph_task is not None:
        is_under_way = found is not None and graph_task in {task.id for task in found.tasks}
        return found if is_under_way else _raised_in(trace, graph_task)
    if found is not None:
        return found
    failed = failed_graph_tasks(trace)
    return why_raised(trace, failed[-1].id) if failed else None


def failed_graph_tasks(trace: Trace) -> list[GraphTaskRow]:
    """The graph tasks that raised, in order; of one inside another that raised, the outer one.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    unfinished = trace.graph_tasks.unfinished
    failed = {task.id: task for task in unfinished if task.status is GraphTaskStatus.FAILED}
    return [task for task in failed.values() if task.parent not in failed]


def failing(
    trace: Trace, under_way: Hang
) -> InplaceModification | BackwardTwice | RaisedException | None:
    """Why the innermost backward pass under way in which a node raised will fail; None: none did.

    A debugger stops there, and other device threads may hold the pass still.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    for task in reversed(under_way.tasks):
        error, _ = exception(trace, task)
        if error:
            return why_raised(trace, task.id)
    return None


def why_raised(
    trace: Trace, graph_task: int
) -> InplaceModification | BackwardTwice | RaisedException:
    """Why a graph task that failed did.

    Raises:
        agviz.errors.TraceError: there is no such graph task, or the file is damaged.
    """
    return version_error(trace, graph_task) or raised(trace, graph_task)


def _raised_in(
    trace: Trace, graph_task: int
) -> InplaceModification | BackwardTwice | RaisedException | None:
    """The same of a graph task or of one inside it whose exception was caught there."""
    family = {graph_task, *trace.family(graph_task)}
    failed = [task.id for task in failed_graph_tasks(trace) if task.id in family]
    return why_raised(trace, failed[-1]) if failed else None


def is_wrong(found: Failure | None) -> bool:
    """Whether anything went wrong: not where a backward pass is just under way."""
    return found is not None and not (isinstance(found, Hang) and not found.is_over_due)
