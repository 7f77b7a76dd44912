"""Executions of nodes: each NodeStarted with the event that ended it."""

from __future__ import annotations

import itertools
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from agviz.traces import codec
from agviz.traces.rows import ExecutionRow, NodeStatus
from agviz_engine import events

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STARTED: Final = codec.KIND[events.NodeStarted]
END: Final = {
    codec.KIND[events.NodeFinished]: NodeStatus.DONE,
    codec.KIND[events.NodeFailed]: NodeStatus.FAILED,
    codec.KIND[events.NodeSkipped]: NodeStatus.SKIPPED,
}
_RUNNING: Final[tuple[None, NodeStatus]] = None, NodeStatus.RUNNING


def executions(
    told: Sequence[tuple[int, ...]],
    names: Mapping[int, Sequence[str] | Mapping[int, str]],
    start_ns: int,
) -> list[ExecutionRow]:
    """Rows in order of their first event; those skipped before they started have order 0.

    Args:
        told: seq, t, thread, graph task, kind and node of the events in :data:`STARTED` and
            :data:`END`, in order of seq.
        names: short names by graph task and node.
        start_ns: when the recording began.

    Raises:
        IndexError, KeyError: there is no such graph task or node.
    """
    if told and min(row[5] for row in told) < 0:
        raise IndexError
    ends: dict[tuple[int, int], tuple[int | None, NodeStatus]] = {
        (number, node): (t + start_ns, END[kind])
        for _, t, _, number, kind, node in told
        if kind != STARTED
    }
    orders = {number: itertools.count(1) for number in names}
    rows = [
        ExecutionRow(
            number,
            next(orders[number]),
            node,
            names[number][node],
            thread,
            t + start_ns,
            *ends.pop((number, node), _RUNNING),
            seq,
        )
        for seq, t, thread, number, kind, node in told
        if kind == STARTED
    ]
    if ends:
        rows += [
            ExecutionRow(
                *(number, 0, node, names[number][node], thread, t + start_ns),
                *ends.pop((number, node)),
                seq,
            )
            for seq, t, thread, number, kind, node in told
            if kind != STARTED and (number, node) in ends
        ]
        rows.sort(key=attrgetter("seq"))
    return rows


def self_times(rows: Sequence[ExecutionRow]) -> list[int]:
    """Time in ns that each execution took without those that ran inside it on the same thread.

    A node runs others inside it where it makes a reentrant call. The self times of a thread add up
    to the time in which it was busy. An execution that did not end, or never began, has none.

    Args:
        rows: in order of NodeStarted; all that are meant to be taken off.
    """
    found = [0] * len(rows)
    inside: dict[int, list[tuple[int, int]]] = {}
    """By thread: when the executions end that are under way, innermost last, and their places."""
    for place, row in enumerate(rows):
        start, end = row.start_ns, row.end_ns
        if not row.order or end is None:
            continue
        under_way = inside.setdefault(row.thread, [])
        while under_way and under_way[-1][0] <= start:
            under_way.pop()
        found[place] = end - start
        if under_way:
            until, outer = under_way[-1]
            found[outer] -= min(end, until) - start
        under_way.append((end, place))
    return found
