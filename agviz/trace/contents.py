"""What a trace file says, read once and turned into rows."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, cast

from agviz.trace import codec
from agviz.trace.database import given, of
from agviz.trace.rows import (
    EdgeRow,
    ExecutionRow,
    GraphTaskRow,
    GraphTaskStatus,
    Meta,
    NodeRow,
    NodeStatus,
    NonFinite,
    ThreadRow,
)
from agviz.trace.schema import CHECK, EXECUTION
from agviz.trace.state import GraphShape
from agviz.trace.text import clean, clean_message
from agviz_engine import events
from agviz_engine.events import CPU_QUEUE

if TYPE_CHECKING:
    from agviz.trace.database import Database

_STARTED: Final = codec.KIND[events.NodeStarted]
_END: Final = {
    codec.KIND[events.NodeFinished]: NodeStatus.DONE,
    codec.KIND[events.NodeFailed]: NodeStatus.FAILED,
    codec.KIND[events.NodeSkipped]: NodeStatus.SKIPPED,
}
_MOST_OUTPUTS: Final = 100_000


class Contents:
    """The rows of a trace file at one moment; a file that grew needs a new one."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._strings: dict[int, str] = {0: ""}
        self._names: dict[int, list[str]] = {}
        self._nodes: dict[int, list[NodeRow]] = {}
        self._executions: dict[int | None, list[ExecutionRow]] = {}

    @cached_property
    def meta(self) -> Meta:
        """What was recorded."""
        rows = self._database.texts("SELECT key, value FROM meta LIMIT 100")
        try:
            facts = {key: json.loads(value) for key, value in cast("list[tuple[str, str]]", rows)}
            return Meta(
                script=clean(_is_a(str, facts["script"])),
                argv=tuple(clean(_is_a(str, word)) for word in _is_a(list, facts["argv"])),
                pid=_is_a(int, facts["pid"]),
                started_unix_ns=_is_a(int, facts["started_unix_ns"]),
                start_ns=_is_a(int, facts["start_ns"]),
                end_ns=None if facts["end_ns"] is None else _is_a(int, facts["end_ns"]),
                python=clean(_is_a(str, facts["python"])),
                torch=clean(_is_a(str, facts["torch"])),
                agviz=clean(_is_a(str, facts["agviz"])),
                partial=_is_a(bool, facts["partial"]),
                stopped=clean(_is_a(str, facts["stopped"])),
            )
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise self._database.damaged("it does not say what was recorded") from error

    @cached_property
    def is_growing(self) -> bool:
        """Whether the recording was not closed and a process of its number is alive."""
        meta = self.meta
        return meta.end_ns is None and not meta.stopped and _is_alive(meta.pid)

    @cached_property
    def threads(self) -> list[ThreadRow]:
        """By id."""
        threads = {
            number: ThreadRow(number, self.name(name), queue, native_id)
            for number, name, queue, native_id in self._database.integers(
                "SELECT id, name, queue, native_id FROM thread"
            )
        }
        # A thread that was at work before this recording began was not introduced to it.
        for thread, queue in self._database.integers(
            "SELECT thread, max(queue) FROM event JOIN node"  # noqa: S608
            " ON node.graph_task = event.graph_task AND node.idx = event.node"
            f" WHERE {EXECUTION} GROUP BY thread"
        ):
            name = f"pt_autograd_{queue}" if queue > CPU_QUEUE else f"thread {thread}"
            threads.setdefault(thread, ThreadRow(thread, name, queue, 0))
        for task in self.graph_tasks.values():
            threads.setdefault(
                task.thread, ThreadRow(task.thread, f"thread {task.thread}", CPU_QUEUE, 0)
            )
        return [threads[number] for number in sorted(threads)]

    @cached_property
    def graph_tasks(self) -> dict[int, GraphTaskRow]:
        """By id."""
        rows = self._database.numbers(
            "SELECT id, parent, parent_node, depth, keep_graph, create_graph, accumulate, roots,"
            " inputs, thread, nodes, edges, begin_seq, begin_t, end_seq, end_t, error, message,"
            " executed FROM graph_task ORDER BY id"
        )
        if any(None in (*row[:14], *row[16:18]) for row in rows):
            raise self._database.damaged("a graph task lacks a fact")
        start_ns = self.meta.start_ns
        open_end = GraphTaskStatus.RUNNING if self.is_growing else GraphTaskStatus.CUT
        tasks = {}
        for row in cast("list[tuple[Any, ...]]", rows):
            number, end_t, error = row[0], row[15], self.name(row[16])
            status = open_end if end_t is None else GraphTaskStatus.FINISHED
            if error:
                status = GraphTaskStatus.FAILED
            executed = row[18]
            if executed is None:
                executed = self._database.value(
                    "SELECT count(*) FROM event WHERE graph_task = ?"  # noqa: S608
                    f" AND {EXECUTION} AND kind = 5",
                    number,
                )
            tasks[number] = GraphTaskRow._make(
                (
                    *row[:4],
                    *map(bool, row[4:7]),
                    *row[7:13],
                    row[13] + start_ns,
                    row[14],
                    None if end_t is None else end_t + start_ns,
                    status,
                    error,
                    self.message(row[17]),
                    executed,
                )
            )
        return tasks

    def names(self, graph_task: int) -> list[str]:
        """Torch's names of the nodes of a graph task, by index."""
        names = self._names.get(graph_task)
        if names is None:
            rows = self._database.integers(
                "SELECT idx, name FROM node WHERE graph_task = ? ORDER BY idx", graph_task
            )
            if [row[0] for row in rows] != list(range(len(rows))):
                raise self._database.damaged("a node is missing")
            names = self._names[graph_task] = [self.name(name) for _, name in rows]
        return names

    def nodes(self, graph_task: int) -> list[NodeRow]:
        """By index."""
        nodes = self._nodes.get(graph_task)
        if nodes is None:
            nodes = self._nodes[graph_task] = self._read_nodes(graph_task)
        return nodes

    def edges(self, graph_task: int) -> list[EdgeRow]:
        """By producer and output."""
        rows = self._database.integers(
            "SELECT producer, output, consumer, slot FROM edge WHERE graph_task = ?"
            " ORDER BY producer, output",
            graph_task,
        )
        nodes = len(self.names(graph_task))
        if any(not (0 <= row[0] < nodes and 0 <= row[2] < nodes) for row in rows):
            raise self._database.damaged("an edge leads to a node that is not there")
        return [EdgeRow(*row) for row in rows]

    def executions(self, graph_task: int | None) -> list[ExecutionRow]:
        """Nodes taken up, by NodeStarted; those skipped before they started have order 0."""
        rows = self._executions.get(graph_task)
        if rows is None:
            rows = self._executions[graph_task] = self._read_executions(graph_task)
        return rows

    def shape(self, graph_task: int) -> GraphShape:
        """What the replay of a graph task needs."""
        rows = self._database.numbers(
            "SELECT sequence_nr, dependencies FROM node WHERE graph_task = ? ORDER BY idx",
            graph_task,
        )
        return GraphShape([row[0] for row in rows], [row[1] or 0 for row in rows])

    def _text(self, number: int) -> str:
        text = self._strings.get(number)
        if text is None:
            rows = self._database.texts("SELECT id, text FROM string WHERE id = ?", number)
            if not rows:
                raise self._database.damaged("a text is missing")
            text = self._strings[number] = rows[0][1]
        return text

    def name(self, number: int) -> str:
        """A text on one line."""
        return clean(self._text(number))

    def message(self, number: int) -> str:
        """The text of an exception."""
        return clean_message(self._text(number))

    def _read_executions(self, graph_task: int | None) -> list[ExecutionRow]:
        rows = self._database.integers(
            f"SELECT seq, t, thread, graph_task, kind, node FROM event WHERE {EXECUTION}"  # noqa: S608
            f" {of(graph_task)} ORDER BY seq",
            *given(graph_task),
        )
        start_ns = self.meta.start_ns
        found: dict[tuple[int, int], ExecutionRow] = {}
        orders: Counter[int] = Counter()
        for seq, t, thread, number, kind, node in rows:
            if number not in self.graph_tasks:
                continue  # it was under way when the recording began
            now = t + start_ns
            key = number, node
            row = found.get(key)
            if kind != _STARTED and kind not in _END:
                raise self._database.damaged("an index does not fit its table")
            if kind != _STARTED and row is not None:
                found[key] = row._replace(end_ns=now, status=_END[kind])
                continue
            names = self.names(number)
            if not 0 <= node < len(names):
                raise self._database.damaged("an event concerns a node that is not there")
            orders[number] += kind == _STARTED
            found[key] = ExecutionRow(
                graph_task=number,
                order=orders[number] if kind == _STARTED else 0,
                node=node,
                name=short_name(names[node]),
                thread=thread,
                start_ns=now,
                end_ns=None if kind == _STARTED else now,
                status=_END.get(kind, NodeStatus.RUNNING),
                seq=seq,
            )
        return list(found.values())

    def _read_nodes(self, graph_task: int) -> list[NodeRow]:
        names = self.names(graph_task)
        rows = self._database.numbers(
            "SELECT idx, sequence_nr, topological_nr, queue, num_inputs, dependencies, parameter,"
            " module, shapes FROM node WHERE graph_task = ? ORDER BY idx",
            graph_task,
        )
        if any(None in (row[0], *row[2:]) for row in rows) or len(rows) != len(names):
            raise self._database.damaged("a node lacks a fact")
        executions = {row.node: row for row in self.executions(graph_task)}
        ready = self._ready(graph_task)
        nonfinite = {
            node: NonFinite(*counts)
            for node, *counts in self._database.integers(
                f"SELECT node, sum(b), sum(c), sum(d) FROM event WHERE {CHECK}"  # noqa: S608
                " AND graph_task = ? GROUP BY node",
                graph_task,
            )
        }
        shapes = [
            self._shapes(self._text(row[8])) if row[8] else None
            for row in cast("list[tuple[int, ...]]", rows)
        ]
        outputs: list[list[tuple[int, ...] | None]] = [[] for _ in rows]
        for edge in self.edges(graph_task):
            received = shapes[edge.consumer]
            produced = outputs[edge.producer]
            if not 0 <= edge.output < _MOST_OUTPUTS:
                raise self._database.damaged("an edge starts at an output that is not there")
            produced += [None] * (edge.output + 1 - len(produced))
            if received is not None and 0 <= edge.slot < len(received):
                produced[edge.output] = received[edge.slot]
        nodes = []
        for row in cast("list[tuple[Any, ...]]", rows):
            index, sequence_nr, topological_nr, queue, inputs, dependencies, parameter, module = (
                row[:8]
            )
            execution = executions.get(index)
            name = short_name(names[index])
            received = shapes[index]
            status = NodeStatus.READY if index in ready else NodeStatus.WAITING
            nodes.append(
                NodeRow(
                    graph_task=graph_task,
                    index=index,
                    name=names[index],
                    short_name=name,
                    sequence_nr=sequence_nr,
                    topological_nr=topological_nr,
                    queue=queue,
                    num_inputs=inputs,
                    dependencies=dependencies,
                    parameter=self.name(parameter) or None,
                    shape=received[0] if received and name == "AccumulateGrad" else None,
                    module=self.name(module) or None,
                    status=status if execution is None else execution.status,
                    order=execution.order or None if execution else None,
                    thread=execution.thread if execution else None,
                    start_ns=execution.start_ns if execution and execution.order else None,
                    end_ns=execution.end_ns if execution else None,
                    input_shapes=received,
                    output_shapes=tuple(outputs[index]),
                    nonfinite=nonfinite.get(index),
                )
            )
        return nodes

    def _ready(self, graph_task: int) -> set[int]:
        """Nodes that were queued; asked for only where a graph task did not finish."""
        task = self.graph_tasks.get(graph_task)
        if task is None or task.status is GraphTaskStatus.FINISHED:
            return set()
        rows = self._database.integers(
            "SELECT node FROM event WHERE graph_task = ? AND kind = ?",
            graph_task,
            codec.KIND[events.QueuePush],
        )
        return {node for (node,) in rows}

    def _shapes(self, text: str) -> tuple[tuple[int, ...], ...]:
        try:
            return tuple(
                tuple(_is_a(int, size) for size in _is_a(list, json.loads(shape)))
                for shape in text.split(";")
            )
        except (TypeError, ValueError, RecursionError) as error:
            raise self._database.damaged("a shape is none") from error


def short_name(name: str) -> str:
    """A node's name without the namespaces in front of it."""
    return re.sub(r"^(\w+::)+", "", name)


def _is_a(kind: type[Any], value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(kind)
    return value


def _is_alive(pid: int) -> bool:
    try:
        if pid > 0:
            os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return pid > 0
