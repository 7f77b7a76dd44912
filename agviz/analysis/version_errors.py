"""Backward passes that failed because saved tensors were modified, or released already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from agviz.analysis.backward_twice import BackwardTwice, backward_twice
from agviz.analysis.modified import InplaceModification, modified
from agviz.analysis.raised import exception, innermost
from agviz.traces.rows import NodeStatus

if TYPE_CHECKING:
    from agviz.traces.reader import Trace

VersionError: TypeAlias = "InplaceModification | BackwardTwice"

_MODIFIED: Final = (
    "one of the variables needed for gradient computation has been modified by an inplace operation"
)
_SECOND_TIME: Final = "Trying to backward through the graph a second time"


def version_error(trace: Trace, graph_task: int) -> VersionError | None:
    """Why a graph task failed, where one of the two is why; None: it did not, or something else.

    Args:
        trace: the trace.
        graph_task: the call of backward or grad; what failed may be a reentrant one inside it.

    Raises:
        agviz.errors.TraceError: there is no such graph task, or the file is damaged.
    """
    task = trace.graph_task(graph_task)
    _, message = exception(trace, task)
    if not _is_known(message):
        return None
    inner = innermost(trace, task)
    node = next((node for node in trace.nodes(inner.id) if node.status is NodeStatus.FAILED), None)
    if node is None:
        return None
    if message.startswith(_MODIFIED):
        return modified(trace, inner.id, node, message)
    return backward_twice(trace, inner.id, node)


def _is_known(message: str) -> bool:
    return message.startswith((_MODIFIED, _SECOND_TIME))
