"""Reading what a view is of."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from agviz.analysis.default_pass import inside_of, outermost
from agviz.graph.cut import around, leading_to
from agviz.graph.difference import lay_over
from agviz.graph.model import read_graph
from agviz.graph.moment import at_event
from agviz.words.units import plural

if TYPE_CHECKING:
    from agviz.graph.model import TaskGraph
    from agviz.graph.view import GraphView
    from agviz.traces.reader import Trace


def read_view(trace: Trace, view: GraphView, other: Trace | None = None) -> TaskGraph:
    """The graph that a view is of.

    Args:
        trace: where it is recorded.
        view: what of it.
        other: another recording that is laid over it.

    Raises:
        agviz.errors.AgvizError: there is no such node, parameter or event.
        agviz.errors.TraceError: no such graph task, or it has no graph.
    """
    task = view.graph_task
    if task is None and view.at is not None:
        task = _task_of(trace, view.at)
    graph = read_graph(trace, task, saved=view.saved, inside=other is None)
    if other is not None:
        graph = lay_over(graph, trace, other)
        left_out = len(inside_of(trace.graph_tasks, graph.task.id))
        if left_out:
            passes = plural(left_out, "pass", "passes")
            graph = replace(graph, notes=(f"{passes} inside of it: not compared, not drawn",))
    if view.at is not None:
        graph = at_event(graph, trace, view.at)
    if view.around is not None:
        graph = around(graph, view.around, view.depth)
    if view.to is not None:
        graph = leading_to(graph, view.to)
    return graph


def _task_of(trace: Trace, seq: int) -> int | None:
    """The graph task that an event belongs to, or the one around that."""
    found = trace.events(offset=trace.position(seq), limit=1)
    tasks = {task.id for task in trace.graph_tasks if task.nodes}
    if not found or found[0].graph_task not in tasks:
        return None
    return outermost(trace.graph_tasks, found[0].graph_task)
