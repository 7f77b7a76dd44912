"""Reading a trace: the one way from a ``*.agviz`` file to rows, events and replayed state."""

from __future__ import annotations

import json
import os
import re
from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, Self, cast

from agviz.errors import TraceError
from agviz.trace import codec
from agviz.trace.database import Database
from agviz.trace.replay import Replay
from agviz.trace.rows import (
    EdgeRow,
    ExecutionRow,
    GraphTaskRow,
    GraphTaskStatus,
    HookTime,
    Meta,
    NodeRow,
    NodeStatus,
    NonFinite,
    NonFiniteRow,
    Slowest,
    ThreadRow,
    ThreadTime,
    TypeTime,
)
from agviz.trace.state import BackwardState, GraphShape
from agviz.trace.text import clean, clean_message
from agviz_engine import events
from agviz_engine.events import CPU_QUEUE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike
    from types import TracebackType

    from agviz_engine.events import Event

_EVENT: Final = "SELECT seq, t, thread, graph_task, kind, node, a, b, c, d FROM event"
_PUSH: Final = codec.KIND[events.QueuePush]
_STARTED: Final = codec.KIND[events.NodeStarted]
_EXECUTION: Final = "kind IN (4, 5, 6, 7)"  # NodeStarted to NodeSkipped, as in the index
_CHECK: Final = "kind = 13"  # NonFiniteChecked
_HOOK: Final = "kind = 8"  # HookCalled
_END: Final = {
    codec.KIND[events.NodeFinished]: NodeStatus.DONE,
    codec.KIND[events.NodeFailed]: NodeStatus.FAILED,
    codec.KIND[events.NodeSkipped]: NodeStatus.SKIPPED,
}
_EVENTS_PER_QUERY: Final = 5_000
_EVENTS_PER_ANCHOR: Final = 1_000


class Trace:
    """A recorded file, finished or still growing. Use :meth:`open`; it is a context manager.

    Everything is read when asked for, so a growing file shows its newest committed state. A trace
    belongs to the thread that opened it. Every method may raise
    :class:`agviz.errors.TraceError` where the file turns out to be damaged, or where it holds no
    graph task or node of the number asked for.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._strings: dict[int, str] = {0: ""}
        self._version = -1
        self._known: dict[tuple[Any, ...], Any] = {}
        """What was read or computed, until the file grows."""

    @classmethod
    def open(cls, path: str | PathLike[str]) -> Self:
        """Open ``path`` for reading; the file is never written to.

        Raises:
            agviz.errors.TraceError: no such file, a folder, empty, not SQLite, not a trace,
                damaged, or written by a newer agviz.
        """
        trace = cls(Database(path))
        try:
            _ = trace.meta
        except BaseException:
            trace.close()
            raise
        return trace

    def close(self) -> None:
        """Let go of the file; a second call has no effect."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def path(self) -> str:
        """The path that was opened, control characters replaced."""
        return self._database.name

    @property
    def meta(self) -> Meta:
        """What was recorded. ``meta.end_ns is None``: cut off, or still growing."""
        known = self._cache()
        if ("meta",) not in known:
            known["meta",] = self._read_meta()
        return cast("Meta", known["meta",])

    @property
    def is_growing(self) -> bool:
        """Whether the recording was not closed and a process of its number is alive."""
        meta = self.meta
        return meta.end_ns is None and not meta.stopped and _is_alive(meta.pid)

    @property
    def threads(self) -> list[ThreadRow]:
        """The threads that took part, by id."""
        known = self._cache()
        if ("threads",) not in known:
            known["threads",] = self._read_threads()
        return list(known["threads",])

    @property
    def graph_tasks(self) -> list[GraphTaskRow]:
        """The graph tasks, by id: in order of creation."""
        return list(self._graph_tasks().values())

    def graph_task(self, graph_task: int) -> GraphTaskRow:
        """One graph task. Raises TraceError where the trace has none with this id."""
        found = self._graph_tasks().get(graph_task)
        if found is None:
            raise TraceError(f"{self.path} holds no graph task {graph_task}; see its graph_tasks")
        return found

    def nodes(self, graph_task: int) -> list[NodeRow]:
        """The nodes of a graph task: ``nodes(g)[i].index == i``."""
        self.graph_task(graph_task)
        known = self._cache()
        key = "nodes", graph_task
        if key not in known:
            known[key] = self._read_nodes(graph_task)
        return list(known[key])

    def node(self, graph_task: int, node: int) -> NodeRow:
        """One node. Raises TraceError where the graph task has none of this index."""
        nodes = self.nodes(graph_task)
        if not 0 <= node < len(nodes):
            raise TraceError(
                f"graph task {graph_task} of {self.path} holds no node {node}; "
                f"it has {len(nodes)} nodes, counted from 0"
            )
        return nodes[node]

    def edges(self, graph_task: int) -> list[EdgeRow]:
        """The edges of a graph task, by producer and output."""
        self.graph_task(graph_task)
        rows = self._database.integers(
            "SELECT producer, output, consumer, slot FROM edge WHERE graph_task = ?"
            " ORDER BY producer, output",
            graph_task,
        )
        nodes = len(self._names(graph_task))
        if any(not (0 <= row[0] < nodes and 0 <= row[2] < nodes) for row in rows):
            raise self._database.damaged("an edge leads to a node that is not there")
        return [EdgeRow(*row) for row in rows]

    def executions(self, graph_task: int) -> list[ExecutionRow]:
        """The nodes taken up by a thread, in the order of NodeStarted."""
        self.graph_task(graph_task)
        return [row for row in self._executions(graph_task) if row.order]

    def event_count(self, graph_task: int | None = None) -> int:
        """Number of events of a graph task, or of the whole trace."""
        return self._extent(graph_task)[0]

    def events(
        self, graph_task: int | None = None, offset: int = 0, limit: int = 100
    ) -> list[Event]:
        """Events ``offset`` to ``offset + limit`` in order of ``seq``, as they were emitted.

        Args:
            graph_task: only those of this graph task; None: all.
            offset: position of the first, from 0.
            limit: at most this many.
        """
        offset, limit = max(offset, 0), max(limit, 0)
        count, first, last = self._extent(graph_task)
        if offset >= count:
            return []
        if last - first + 1 == count:
            first, offset = first + offset, 0
        else:
            first = self._anchors(graph_task)[offset // _EVENTS_PER_ANCHOR]
            offset %= _EVENTS_PER_ANCHOR
        return self._events(
            f"seq >= ? {_of(graph_task)} ORDER BY seq LIMIT ? OFFSET ?",
            first,
            *_given(graph_task),
            limit,
            offset,
        )

    def position(self, seq: int, graph_task: int | None = None) -> int:
        """Number of events (of ``graph_task``) before the one with ``seq``: its ``offset``."""
        count, first, last = self._extent(graph_task)
        if seq <= first or not count:
            return 0
        if seq > last:
            return count
        if last - first + 1 == count:
            return seq - first
        anchors = self._anchors(graph_task)
        before = bisect_right(anchors, seq) - 1
        return before * _EVENTS_PER_ANCHOR + self._database.value(
            f"SELECT count(*) FROM event WHERE seq >= ? AND seq < ? {_of(graph_task)}",  # noqa: S608
            anchors[before],
            seq,
            *_given(graph_task),
        )

    def story(self, graph_task: int, node: int) -> list[Event]:
        """Every event that concerns a node, in order.

        Those of the node itself, and those in which it gave a gradient to a consumer.
        """
        self.graph_task(graph_task)
        return self._events(
            "seq IN (SELECT seq FROM event WHERE graph_task = ? AND node = ? UNION"
            " SELECT seq FROM event WHERE graph_task = ? AND kind IN (9, 10) AND a = ? AND node IN"
            " (SELECT consumer FROM edge WHERE graph_task = ? AND producer = ?)) ORDER BY seq",
            *(graph_task, node) * 3,
        )

    def nonfinite(self, graph_task: int | None = None, limit: int = 1000) -> list[NonFiniteRow]:
        """Outputs with NaN or infinities, in order of detection."""
        rows = self._database.integers(
            f"SELECT graph_task, node, thread, a, b, c, d, seq, t FROM event WHERE {_CHECK}"  # noqa: S608
            f" AND b + c + d > 0 {_of(graph_task)} ORDER BY seq LIMIT ?",
            *_given(graph_task),
            max(limit, 0),
        )
        start_ns = self.meta.start_ns
        found = []
        for number, index, thread, output, nan, posinf, neginf, seq, t in rows:
            nodes = self.nodes(number)
            if not 0 <= index < len(nodes):
                raise self._database.damaged("an event concerns a node that is not there")
            node = nodes[index]
            found.append(
                NonFiniteRow(
                    graph_task=number,
                    node=index,
                    name=node.short_name,
                    parameter=node.parameter,
                    module=node.module,
                    order=node.order,
                    thread=thread,
                    output=output,
                    nan=nan,
                    posinf=posinf,
                    neginf=neginf,
                    seq=seq,
                    time_ns=t + start_ns,
                )
            )
        return found

    def first_nonfinite(self, graph_task: int | None = None) -> NonFiniteRow | None:
        """The first output with NaN or infinities, or None."""
        return next(iter(self.nonfinite(graph_task, limit=1)), None)

    def slowest(self, n: int = 10, graph_task: int | None = None) -> Slowest:
        """The ``n`` types of nodes with the largest total time and the ``n`` longest executions."""
        durations: dict[str, list[int]] = {}
        ended = []
        for row in self._executions(graph_task):
            if row.order and row.end_ns is not None:
                durations.setdefault(row.name, []).append(row.end_ns - row.start_ns)
                ended.append(row)
        types = [TypeTime(name, len(ns), sum(ns), max(ns)) for name, ns in durations.items()]
        types.sort(key=lambda row: (-row.total_ns, row.name))
        ended.sort(key=lambda row: (row.start_ns - cast("int", row.end_ns), row.seq))
        return Slowest(types[:n], ended[:n])

    def hook_times(self, graph_task: int | None = None) -> list[HookTime]:
        """Time spent in hooks, the largest total first."""
        rows = self._database.integers(
            "SELECT a, b, count(*), sum(c), sum(d <> 0) FROM event"  # noqa: S608
            f" WHERE {_HOOK} {_of(graph_task)} GROUP BY a, b ORDER BY sum(c) DESC, min(seq)",
            *_given(graph_task),
        )
        return [
            HookTime(self._name(kind), self._name(name), calls, total, changed)
            for kind, name, calls, total, changed in rows
        ]

    def thread_times(self, graph_task: int | None = None) -> list[ThreadTime]:
        """What every thread did, by thread id."""
        executed: Counter[int] = Counter()
        busy: Counter[int] = Counter()
        busy_until: dict[int, int] = {}
        for row in self._executions(graph_task):
            if not row.order or row.end_ns is None:
                continue
            executed[row.thread] += row.status is not NodeStatus.SKIPPED
            if row.end_ns > busy_until.get(row.thread, row.start_ns - 1):
                busy[row.thread] += row.end_ns - row.start_ns
                busy_until[row.thread] = row.end_ns
        return [ThreadTime(thread, executed[thread], busy[thread]) for thread in sorted(executed)]

    def state_at(self, graph_task: int, position: int) -> BackwardState:
        """The engine's state after the first ``position`` events of a graph task.

        Args:
            graph_task: whose events are counted; the state holds what else was under way too.
            position: 0 (before GraphTaskBegun) to ``event_count(graph_task)``.

        Returns:
            A state of the caller's own, which may be moved on with ``apply``.
        """
        task = self.graph_task(graph_task)
        seq = task.begin_seq - 1
        if position > 0:
            found = self.events(graph_task, offset=position - 1, limit=1)
            if not found:
                raise TraceError(
                    f"graph task {graph_task} of {self.path} has {self.event_count(graph_task)} "
                    f"events, there is no position {position}"
                )
            seq = found[0].seq
        known = self._cache()
        if ("replay",) not in known:
            meta = self.meta
            known["replay",] = Replay(
                self.graph_tasks,
                self._events_between,
                self._shape,
                tolerant=meta.end_ns is None or meta.partial or bool(meta.stopped),
            )
        return cast("Replay", known["replay",]).state_at(seq)

    # How it is read.

    def _cache(self) -> dict[tuple[Any, ...], Any]:
        version = self._database.version()
        if version != self._version:
            self._version = version
            self._known = {}
        return self._known

    def _text(self, number: int) -> str:
        text = self._strings.get(number)
        if text is None:
            rows = self._database.texts("SELECT id, text FROM string WHERE id = ?", number)
            if not rows:
                raise self._database.damaged("a text is missing")
            text = self._strings[number] = rows[0][1]
        return text

    def _name(self, number: int) -> str:
        return clean(self._text(number))

    def _message(self, number: int) -> str:
        return clean_message(self._text(number))

    def _read_meta(self) -> Meta:
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

    def _read_threads(self) -> list[ThreadRow]:
        threads = {
            number: ThreadRow(number, self._name(name), queue, native_id)
            for number, name, queue, native_id in self._database.integers(
                "SELECT id, name, queue, native_id FROM thread"
            )
        }
        # A thread that was at work before this recording began was not introduced to it.
        for thread, queue in self._database.integers(
            "SELECT thread, max(queue) FROM event JOIN node"  # noqa: S608
            " ON node.graph_task = event.graph_task AND node.idx = event.node"
            f" WHERE {_EXECUTION} GROUP BY thread"
        ):
            threads.setdefault(thread, ThreadRow(thread, f"thread {thread}", queue, 0))
        for task in self._graph_tasks().values():
            threads.setdefault(
                task.thread, ThreadRow(task.thread, f"thread {task.thread}", CPU_QUEUE, 0)
            )
        return [threads[number] for number in sorted(threads)]

    def _graph_tasks(self) -> dict[int, GraphTaskRow]:
        known = self._cache()
        if ("graph tasks",) not in known:
            known["graph tasks",] = self._read_graph_tasks()
        return cast("dict[int, GraphTaskRow]", known["graph tasks",])

    def _read_graph_tasks(self) -> dict[int, GraphTaskRow]:
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
            number, end_t, error = row[0], row[15], self._name(row[16])
            status = open_end if end_t is None else GraphTaskStatus.FINISHED
            if error:
                status = GraphTaskStatus.FAILED
            executed = row[18]
            if executed is None:
                executed = self._database.value(
                    "SELECT count(*) FROM event WHERE graph_task = ?"  # noqa: S608
                    f" AND {_EXECUTION} AND kind = 5",
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
                    self._message(row[17]),
                    executed,
                )
            )
        return tasks

    def _names(self, graph_task: int) -> list[str]:
        """Torch's names of the nodes of a graph task, by index."""
        known = self._cache()
        key = "names", graph_task
        if key not in known:
            rows = self._database.integers(
                "SELECT idx, name FROM node WHERE graph_task = ? ORDER BY idx", graph_task
            )
            if [row[0] for row in rows] != list(range(len(rows))):
                raise self._database.damaged("a node is missing")
            known[key] = [self._name(name) for _, name in rows]
        return cast("list[str]", known[key])

    def _executions(self, graph_task: int | None) -> list[ExecutionRow]:
        """Nodes taken up, by NodeStarted; those skipped before they started have order 0."""
        known = self._cache()
        key = "executions", graph_task
        if key not in known:
            known[key] = self._read_executions(graph_task)
        return cast("list[ExecutionRow]", known[key])

    def _read_executions(self, graph_task: int | None) -> list[ExecutionRow]:
        rows = self._database.integers(
            f"SELECT seq, t, thread, graph_task, kind, node FROM event WHERE {_EXECUTION}"  # noqa: S608
            f" {_of(graph_task)} ORDER BY seq",
            *_given(graph_task),
        )
        start_ns = self.meta.start_ns
        found: dict[tuple[int, int], ExecutionRow] = {}
        orders: Counter[int] = Counter()
        for seq, t, thread, number, kind, node in rows:
            now = t + start_ns
            key = number, node
            row = found.get(key)
            if kind != _STARTED and row is not None:
                found[key] = row._replace(end_ns=now, status=_END[kind])
                continue
            names = self._names(number)
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
        names = self._names(graph_task)
        rows = self._database.numbers(
            "SELECT idx, sequence_nr, topological_nr, queue, num_inputs, dependencies, parameter,"
            " module, shapes FROM node WHERE graph_task = ? ORDER BY idx",
            graph_task,
        )
        if any(None in (row[0], *row[2:]) for row in rows) or len(rows) != len(names):
            raise self._database.damaged("a node lacks a fact")
        executions = {row.node: row for row in self._executions(graph_task)}
        ready = self._ready(graph_task)
        nonfinite = {
            node: NonFinite(*counts)
            for node, *counts in self._database.integers(
                f"SELECT node, sum(b), sum(c), sum(d) FROM event WHERE {_CHECK}"  # noqa: S608
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
            if not 0 <= edge.output < 100_000:
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
                    parameter=self._name(parameter) or None,
                    shape=received[0] if received and name == "AccumulateGrad" else None,
                    module=self._name(module) or None,
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
        task = self.graph_task(graph_task)
        if task.status is GraphTaskStatus.FINISHED:
            return set()
        rows = self._database.integers(
            f"SELECT node FROM event WHERE graph_task = ? AND kind = {_PUSH:d}",  # noqa: S608
            graph_task,
        )
        return {node for (node,) in rows}

    def _shapes(self, text: str) -> tuple[tuple[int, ...], ...]:
        try:
            return tuple(
                tuple(int(size) for size in shape.split(",") if size)
                for shape in text.split(";")[:-1]
            )
        except ValueError as error:
            raise self._database.damaged("a shape is none") from error

    def _shape(self, graph_task: int) -> GraphShape:
        rows = self._database.numbers(
            "SELECT sequence_nr, dependencies FROM node WHERE graph_task = ? ORDER BY idx",
            graph_task,
        )
        return GraphShape([row[0] for row in rows], [row[1] or 0 for row in rows])

    def _extent(self, graph_task: int | None) -> tuple[int, int, int]:
        """Number of events, and ``seq`` of the first and the last (0 where there is none)."""
        known = self._cache()
        if graph_task is None:
            if ("extent",) not in known:
                known["extent",] = self._database.integers(
                    "SELECT count(*), coalesce((SELECT min(seq) FROM event), 0),"
                    " coalesce((SELECT max(seq) FROM event), 0) FROM event"
                )[0]
            return cast("tuple[int, int, int]", known["extent",])
        if ("extents",) not in known:
            known["extents",] = {
                number: (count, first, last)
                for number, count, first, last in self._database.integers(
                    "SELECT graph_task, count(*), min(seq), max(seq) FROM event GROUP BY graph_task"
                )
            }
        nothing = (0, 0, 0)
        return cast("dict[int, tuple[int, int, int]]", known["extents",]).get(graph_task, nothing)

    def _anchors(self, graph_task: int | None) -> list[int]:
        """``seq`` of every thousandth event, where events of others lie between them."""
        known = self._cache()
        key = "anchors", graph_task
        if key not in known:
            rows = self._database.integers(
                "SELECT seq FROM (SELECT seq, row_number() OVER (ORDER BY seq) AS number"  # noqa: S608
                f" FROM event WHERE TRUE {_of(graph_task)}) WHERE number % ? = 1",
                *_given(graph_task),
                _EVENTS_PER_ANCHOR,
            )
            known[key] = [seq for (seq,) in rows]
        return cast("list[int]", known[key])

    def _events(self, where: str, *parameters: int) -> list[Event]:
        rows = self._database.numbers(f"{_EVENT} WHERE {where}", *parameters)
        start_ns = self.meta.start_ns
        found: list[Event] = []
        for row in rows:
            if row[4] == codec.BEGUN:
                found.append(self._begun(row))
                continue
            try:
                found.append(codec.decode(row, start_ns, self._name, self._message))
            except ValueError as error:
                raise self._database.damaged(error) from error
        return found

    def _begun(self, row: codec.Row) -> Event:
        seq, _, thread, number, *_ = row
        task = self._graph_tasks().get(-1 if number is None else number)
        if task is None or seq is None or thread is None:
            raise self._database.damaged("a graph task is missing")
        return events.GraphTaskBegun(
            seq,
            task.begin_ns,
            thread,
            task.id,
            task.parent,
            task.parent_node,
            task.reentrant_depth,
            task.keep_graph,
            task.create_graph,
            task.accumulate_grad,
            task.roots,
            task.inputs,
        )

    def _events_between(self, low: int, high: int) -> Iterator[Event]:
        while low < high:
            page = self._events(
                "seq > ? AND seq <= ? ORDER BY seq LIMIT ?", low, high, _EVENTS_PER_QUERY
            )
            if not page:
                return
            yield from page
            low = page[-1].seq


def short_name(name: str) -> str:
    """A node's name without the namespaces in front of it."""
    return re.sub(r"^(\w+::)+", "", name)


def _of(graph_task: int | None) -> str:
    """The condition that limits a query to a graph task; the plus keeps the order of ``seq``."""
    return "" if graph_task is None else "AND +graph_task = ?"


def _given(graph_task: int | None) -> tuple[int, ...]:
    return () if graph_task is None else (graph_task,)


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
