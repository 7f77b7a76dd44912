"""Reading which hooks ran at which node."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from agviz.traces.contents import Contents
    from agviz.traces.database import Database
    from agviz.traces.events import EventReader
    from agviz.traces.rows import GraphTaskRow


class HookCalls(NamedTuple):
    """All calls of one hook at one node."""

    node: int
    kind: str
    """``tensor_pre``, ``pre``, ``post`` or ``post_accumulate_grad``."""
    name: str
    calls: int
    total_ns: int
    changed: int
    """Number of calls in which it replaced the gradient."""


def read(
    database: Database, contents: Contents, events: EventReader, task: GraphTaskRow
) -> list[HookCalls]:
    """The hooks of a graph task, in order of nodes and of their first calls.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    rows = events.hooks_by_node(task)
    if any(not 0 <= node < task.nodes for node, *_ in rows):
        raise database.damaged("a hook ran at a node that is not there")
    text = contents.name
    return [HookCalls(node, text(kind), text(name), *counts) for node, kind, name, *counts in rows]
