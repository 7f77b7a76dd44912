"""The list of nodes as it can be folded: neighbours of one module, or of one linear chain."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection

    from agviz.tui.model import Recording


class Group(NamedTuple):
    """Nodes that stand next to each other and belong together."""

    number: int
    title: str
    """The module's path, or what a chain consists of."""
    nodes: list[int]


class Row(NamedTuple):
    """One line of the list: a node, or a whole group that is folded."""

    group: Group
    node: int
    """The node; of a folded group the first one."""
    folded: bool


def groups(recording: Recording, thread: int | None = None) -> list[Group]:
    """The nodes in execution order, in groups of neighbours.

    Args:
        recording: whose nodes.
        thread: only nodes that this thread took up, or that wait for its queue; None: all.
    """
    chain, rows = recording.chains, recording.nodes

    def belongs(node: int) -> tuple[bool, str, int]:
        row = rows[node]
        module = row.module or (row.parameter.rpartition(".")[0] if row.parameter else "")
        return row.order is None, module, -1 if module else chain[node]

    shown = [n for n in recording.execution_order if _on_thread(recording, n, thread)]
    found: list[Group] = []
    for (_, module, first), members in groupby(shown, key=belongs):
        title = module or f"chain from {recording.label(first)}"
        found.append(Group(len(found), title, list(members)))
    return found


def visible(grouped: list[Group], folded: Collection[int]) -> list[Row]:
    """The lines of the list.

    Args:
        grouped: what :func:`groups` found.
        folded: numbers of the groups that show one line.
    """
    return [
        Row(group, node, group.number in folded)
        for group in grouped
        for node in (group.nodes[:1] if group.number in folded else group.nodes)
    ]


def _on_thread(recording: Recording, node: int, thread: int | None) -> bool:
    if thread is None:
        return True
    row = recording.nodes[node]
    if row.thread is not None:
        return row.thread == thread
    server = recording.threads.get(thread)
    return server is not None and row.queue == server.queue
