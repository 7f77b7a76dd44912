"""Which backward pass is meant where none is named: one answer for all that asks.

The user's are those that the program itself asked for: not those that torch.compile runs while it
traces, and not those inside a node of another pass, as a reentrant checkpoint's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agviz.errors import TraceError
from agviz.traces.rows import GraphTaskStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz.traces.reader import Trace
    from agviz.traces.rows import GraphTaskRow


def default_pass(trace: Trace) -> int:
    """The graph task somebody most likely wants to see, which may be inside of another one.

    That is one that failed, else the one with the first non-finite gradient, else the largest of
    the user's calls of ``backward``, else of ``grad``. What was traced only counts where there is
    nothing else.

    Raises:
        agviz.errors.TraceError: the trace holds no graph.
    """
    walked = [task for task in trace.graph_tasks if task.nodes]
    if not walked:
        raise TraceError(
            f"{trace.path} holds no backward pass to draw: nothing was recorded, or it ended "
            "before a graph was walked; record a program that calls backward()."
        )
    tasks = [task for task in walked if not task.traced] or walked
    failed = [task.id for task in tasks if task.status is GraphTaskStatus.FAILED]
    if failed:
        return failed[0]
    found = trace.first_nonfinite()
    if found is not None and any(task.id == found.graph_task for task in tasks):
        return found.graph_task
    own = [task for task in tasks if task.parent < 0] or tasks
    sizes = _sizes(tasks)
    return max(own, key=lambda task: (task.accumulate_grad, sizes[task.id], -task.id)).id


def outermost(tasks: Sequence[GraphTaskRow], graph_task: int) -> int:
    """The graph task around a graph task that is inside of no other one; itself, if it is that."""
    parents = {task.id: task.parent for task in tasks if task.nodes}
    while parents.get(graph_task, -1) in parents:
        graph_task = parents[graph_task]
    return graph_task


def inside_of(tasks: Sequence[GraphTaskRow], graph_task: int) -> list[GraphTaskRow]:
    """Those whose graph was walked inside of a graph task, at any depth, outer ones first."""
    around = {graph_task}
    found = []
    for task in sorted(tasks, key=lambda task: task.id):
        if task.parent in around and task.nodes:
            around.add(task.id)
            found.append(task)
    return found


def _sizes(tasks: Sequence[GraphTaskRow]) -> dict[int, int]:
    """Nodes of each graph task, with those inside of it; they come after it."""
    sizes = {task.id: task.nodes for task in tasks}
    for task in sorted(tasks, key=lambda task: -task.id):
        if task.parent in sizes:
            sizes[task.parent] += sizes[task.id]
    return sizes
