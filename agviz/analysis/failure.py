"""Why a backward pass did not come to its end, where something can be said of that."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from agviz.analysis.hang import Hang, hang
from agviz.analysis.version_errors import version_error, version_errors

if TYPE_CHECKING:
    from agviz.analysis.modified import Modified
    from agviz.analysis.second_time import SecondTime
    from agviz.traces.reader import Trace

Failure: TypeAlias = "Modified | SecondTime | Hang"


def failure(trace: Trace, graph_task: int | None = None) -> Failure | None:
    """Why calls of backward or grad failed, or what holds those that have not ended.

    Args:
        trace: the trace.
        graph_task: the one that is asked about; None: what has not ended, else the last that failed
            for a saved tensor that was modified or released.

    Raises:
        agviz.errors.TraceError: there is no such graph task, or the file is damaged.
    """
    found = hang(trace)
    if graph_task is not None:
        is_under_way = found is not None and graph_task in {task.id for task in found.tasks}
        return found if is_under_way else version_error(trace, graph_task)
    if found is not None:
        return found
    return next(reversed(version_errors(trace)), None)


def is_wrong(found: Failure | None) -> bool:
    """Whether anything went wrong: not where a backward pass is just under way."""
    return found is not None and not (isinstance(found, Hang) and not found.is_over_due)
