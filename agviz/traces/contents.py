"""What a trace file says, read once and turned into rows."""

from __future__ import annotations

import contextlib
import json
import os
from functools import cached_property
from operator import ge, ne
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from agviz.traces import codec
from agviz.traces.database import DURING, along, given, of, place
from agviz.traces.executions import END, STARTED, executions, self_times
from agviz.traces.node_blocks import NodeBlocks
from agviz.traces.nodes import NodeColumns, Nodes, Shape, make_row, short_name, undisturbed
from agviz.traces.rows import (
    EdgeRow,
    ExecutionRow,
    Frame,
    GraphTaskRow,
    GraphTaskStatus,
    Meta,
    NonFinite,
    SavedRow,
    ThreadRow,
)
from agviz.traces.schema import CHECK, EXECUTION, SOURCE_LIMIT
from agviz.traces.stacks import StoredStacks
from agviz.traces.state import GraphShape
from agviz.words.safe import clean, clean_message
from agviz_engine import events
from agviz_engine.events import CPU_QUEUE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz.traces.database import Database
    from agviz.traces.rows import NodeRow

_MOST_OUTPUTS: Final = 100_000
_TEXTS: Final = 255
"""How many more texts are read beside the one that is asked for."""
_ONE_BY_ONE: Final = 16
"""Up to so many graph tasks that did not finish, each is counted by itself."""
_NEVER: Final = 2**63 - 1
_EXECUTION: Final = (STARTED, *END)
_CHECKED: Final = codec.KIND[events.NonFiniteChecked]


class Contents:
    """The rows of a trace file at one moment; a file that grew needs a new one."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._some_graph_tasks: dict[int, GraphTaskRow | None] = {}
        self._strings: dict[int, str] = {0: ""}
        self._lines: dict[int, str] = {}
        """The same on one line."""
        self._parsed: dict[int, tuple[Shape, ...]] = {}
        """Shapes, by the id of their text."""
        self._names: dict[int, list[str]] = {}
        self._nodes: dict[int, Nodes] = {}
        self._counted: dict[int, tuple[int, int]] = {}
        """By graph task: a moment that was asked for, and the nodes taken up until then."""
        self._executions: dict[int | None, list[ExecutionRow]] = {}
        self._self_times: dict[int | None, list[int]] = {}

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
                choice=clean(_is_a(str, facts["choice"])),
                check_forward=_is_a(bool, facts["check_forward"]),
                values=clean(_is_a(str, facts["values"])),
                values_stopped=clean(_is_a(str, facts["values_stopped"])),
                stopped=clean(_is_a(str, facts["stopped"])),
                ended=clean(_is_a(str, facts["ended"])),
            )
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise self._database.damaged("it does not say what was recorded") from error

    @cached_property
    def is_growing(self) -> bool:
        """Whether the recording was not closed and a process of its number is alive."""
        meta = self.meta
        return meta.end_ns is None and not meta.stopped and is_alive(meta.pid)

    @cached_property
    def threads(self) -> list[ThreadRow]:
        """By id."""
        threads = {
            number: ThreadRow(number, self.name(name), queue, native_id)
            for number, name, queue, native_id in self._database.integers(
                "SELECT id, name, queue, native_id FROM thread"
            )
        }
        for thread, queue in self.unknown_threads().items():
            name = f"pt_autograd_{queue}" if queue > CPU_QUEUE else f"thread {thread}"
            threads.setdefault(thread, ThreadRow(thread, name, queue, 0))
        for task in self.graph_tasks.values():
            threads.setdefault(
                task.thread, ThreadRow(task.thread, f"thread {task.thread}", CPU_QUEUE, 0)
            )
        return [threads[number] for number in sorted(threads)]

    def unknown_threads(self) -> dict[int, int]:
        """Threads that were at work before the recording began: their queues, by id."""
        if self.has_shortcuts:
            return {}  # where the recording was closed, they were introduced
        known = {row[0] for row in self._database.integers("SELECT id FROM thread")}
        queues = self._database.integers(
            "SELECT thread, max(queue) FROM event JOIN node"  # noqa: S608
            " ON node.graph_task = event.graph_task AND node.idx = event.node"
            f" WHERE {EXECUTION} GROUP BY thread"
        )
        return {thread: queue for thread, queue in queues if thread not in known}

    @cached_property
    def graph_tasks(self) -> dict[int, GraphTaskRow]:
        """By id."""
        return self._graph_tasks("TRUE ORDER BY id")

    def graph_task(self, number: int) -> GraphTaskRow | None:
        """One of them, without reading the others where they are not known."""
        if "graph_tasks" in self.__dict__ or not 0 <= number <= _NEVER:
            return self.graph_tasks.get(number)
        if number not in self._some_graph_tasks:
            found = self._graph_tasks("id = ?", number)
            self._some_graph_tasks[number] = found.get(number)
        return self._some_graph_tasks[number]

    def _graph_tasks(self, condition: str, *parameters: int) -> dict[int, GraphTaskRow]:
        rows = self._database.numbers(
            "SELECT id, parent, parent_node, depth, keep_graph, create_graph, accumulate, roots,"  # noqa: S608
            " inputs, thread, nodes, edges, begin_seq, begin_t, end_seq, end_t, error, message,"
            f" executed, traced FROM graph_task WHERE {condition}",
            *parameters,
        )
        columns = cast("list[list[Any]]", list(map(list, zip(*rows, strict=True))) or [[]] * 20)
        numbers, parents, *_, begin, _, end, errors, messages, executed, traced = columns
        if any(None in columns[place] for place in (*range(14), 16, 17, 19)):
            raise self._database.damaged("a graph task lacks a fact")
        if any(map(ge, parents, numbers)):
            raise self._database.damaged("a graph task is inside of a later one")
        start_ns = self.meta.start_ns
        open_end = GraphTaskStatus.RUNNING if self.is_growing else GraphTaskStatus.CUT
        names = {number: self.name(number) for number in set(errors)}
        texts = {number: self.message(number) for number in set(messages)}
        rest = [
            [begun + start_ns for begun in begin],
            columns[14],
            [None if ended is None else ended + start_ns for ended in end],
            [
                GraphTaskStatus.FAILED
                if names[error]
                else open_end
                if ended is None
                else GraphTaskStatus.FINISHED
                for ended, error in zip(end, errors, strict=True)
            ],
            [names[error] for error in errors],
            [texts[message] for message in messages],
            self._all_executed(numbers, executed),
            list(map(bool, traced)),
        ]
        truths = [list(map(bool, column)) for column in columns[4:7]]
        every = zip(*columns[:4], *truths, *columns[7:13], *rest, strict=True)
        return dict(zip(numbers, map(GraphTaskRow._make, every), strict=True))

    def _all_executed(
        self, graph_tasks: Sequence[int], executed: Sequence[int | None]
    ) -> list[int]:
        """How many nodes each has executed, counted where it did not finish."""
        known = dict(zip(graph_tasks, executed, strict=True))
        missing = [number for number, count in known.items() if count is None]
        if len(missing) <= _ONE_BY_ONE:
            found = {number: self._executed(number) for number in missing}
        else:
            rows = self._database.integers(
                f"SELECT graph_task, count(*) FROM event WHERE {EXECUTION} AND kind = 5"  # noqa: S608
                " GROUP BY graph_task"
            )
            counts = {row[0]: row[1] for row in rows}
            found = {number: counts.get(number, 0) for number in missing}
        return [found.get(number, count or 0) for number, count in known.items()]

    def _executed(self, graph_task: int) -> int:
        return self._database.value(
            f"SELECT count(*) FROM event WHERE graph_task = ? AND {EXECUTION} AND kind = 5",  # noqa: S608
            graph_task,
        )

    def nodes(self, graph_task: int) -> Nodes:
        """By index."""
        nodes = self._nodes.get(graph_task)
        if nodes is None:
            with undisturbed():
                nodes = self._nodes[graph_task] = Nodes(self._read_columns(graph_task))
        return nodes

    def node(self, graph_task: int, index: int, most_outputs: int = _NEVER) -> NodeRow | None:
        """One node, without reading the others where they are not known; None: there is none.

        Of more than ``most_outputs`` outputs, the shapes of the first are told.
        """
        nodes = self._nodes.get(graph_task)
        if nodes is not None:
            return nodes[index] if 0 <= index < len(nodes) else None
        if not 0 <= index <= _NEVER:
            return None
        columns = self._read_columns(graph_task, index, most_outputs)
        return make_row(columns, index) if index in columns.node else None

    @cached_property
    def stacks(self) -> StoredStacks:
        """Stacks by id."""
        lines = {
            (file, line): self.name(text)[:SOURCE_LIMIT]
            for file, line, text in self._database.integers(
                "SELECT file, line, text FROM source_line"
            )
        }
        frames = {
            number: Frame(
                self.name(file),
                line,
                self.name(function),
                bool(hidden),
                lines.get((file, line), ""),
            )
            for number, file, line, function, hidden in self._database.integers(
                "SELECT id, file, line, function, hidden FROM frame"
            )
        }
        stacks = {
            number: (caller, frame)
            for number, caller, frame in self._database.integers(
                "SELECT id, caller, frame FROM stack"
            )
        }
        try:
            return StoredStacks(frames, stacks)
        except ValueError as error:
            raise self._database.damaged(error) from error

    def _origins(self, graph_task: int, only: int | None) -> dict[int, int]:
        """Ids of stacks, by node."""
        rows = self._database.integers(
            f"SELECT node, stack FROM origin WHERE graph_task = ? {of(only, 'node')}",  # noqa: S608
            graph_task,
            *given(only),
        )
        origins = {node: stack for node, stack in rows}  # noqa: C416 - dict() takes pairs only
        if not all(stack in self.stacks for stack in set(origins.values())):
            raise self._database.damaged("a stack is missing")
        return origins

    def saved(self, graph_task: int, node: int | None = None) -> list[SavedRow]:
        """What a node had saved, in torch's order of names; None: what all nodes had."""
        rows = self._database.numbers(
            "SELECT node, name, shape, dtype, bytes FROM saved WHERE graph_task = ?"  # noqa: S608
            f" {of(node, 'node')} ORDER BY node, number",
            graph_task,
            *given(node),
        )
        found = []
        for index, name, shape, dtype, nbytes in cast("list[Any]", rows):
            if None in {index, name, shape, dtype} or (nbytes is not None and nbytes < 0):
                raise self._database.damaged("a saved tensor lacks a fact")
            shapes = self._shapes(shape) if shape else (None,)
            if len(shapes) != 1:
                raise self._database.damaged("a shape is none")
            found.append(SavedRow(index, self.name(name), shapes[0], self.name(dtype), nbytes))
        return found

    def edges(self, graph_task: int) -> list[EdgeRow]:
        """By producer and output."""
        with undisturbed():
            return list(map(EdgeRow._make, self._edges(graph_task)))

    def _edges(
        self, graph_task: int, only: int | None = None, most: int = _NEVER
    ) -> list[tuple[int, ...]]:
        """The first of the producer ``only``; None: of all."""
        rows = self._database.integers(
            "SELECT producer, output, consumer, slot FROM edge WHERE graph_task = ?"  # noqa: S608
            f" {of(only, 'producer')} ORDER BY producer, output LIMIT ?",
            graph_task,
            *given(only),
            most,
        )
        nodes = _NEVER if only is not None else len(self._short_names(graph_task))
        columns = list(zip(*rows, strict=True)) or [()] * 4
        ranges = range(nodes), range(_MOST_OUTPUTS), range(1, nodes)  # none leads to the root
        for numbers, allowed in zip(columns, ranges, strict=False):
            if numbers and not (min(numbers) in allowed and max(numbers) in allowed):
                raise self._database.damaged("an edge leads where none can")
        return rows

    def _short_names(self, graph_task: int) -> list[str]:
        """By node."""
        names = self._names.get(graph_task)
        if names is None:
            rows = self._database.integers(
                "SELECT idx, name FROM node WHERE graph_task = ? ORDER BY idx", graph_task
            )
            names = self._shorten(graph_task, [row[0] for row in rows], [row[1] for row in rows])
        return names

    def _shorten(self, graph_task: int, indexes: Sequence[int], names: Sequence[int]) -> list[str]:
        """Keep the short names of all nodes, whose names are ids of texts."""
        if any(map(ne, indexes, range(len(indexes)))):
            raise self._database.damaged("a node is missing")
        short = {number: self._short(number) for number in set(names)}
        found = self._names[graph_task] = [short[number] for number in names]
        return found

    def _short(self, number: int) -> str:
        return short_name(self.name(number))

    def executions(self, graph_task: int | None) -> list[ExecutionRow]:
        """Nodes taken up, by NodeStarted; those skipped before they started have order 0."""
        rows = self._executions.get(graph_task)
        if rows is None:
            everything = self._executions.get(None)
            with undisturbed():
                rows = self._executions[graph_task] = (
                    self._read_executions(graph_task)
                    if everything is None
                    else [row for row in everything if row.graph_task == graph_task]
                )
        return rows

    def self_times(self, graph_task: int | None) -> list[int]:
        """The self time of each of :meth:`executions`, without reentrant graph tasks of others."""
        times = self._self_times.get(graph_task)
        if times is None:
            times = self._self_times[graph_task] = self_times(self.executions(graph_task))
        return times

    def shape(self, graph_task: int) -> GraphShape:
        """What a replay of a graph task needs of its nodes."""
        rows = self._database.numbers(
            "SELECT sequence_nr, dependencies, recorded FROM node WHERE graph_task = ?"
            " ORDER BY idx",
            graph_task,
        )
        numbers, dependencies, recorded = list(zip(*rows, strict=True)) or [()] * 3
        if None in dependencies:
            raise self._database.damaged("a node lacks a fact")
        left_out = frozenset(node for node, known in enumerate(recorded) if not known)
        return GraphShape(numbers, cast("Sequence[int]", dependencies), left_out)

    def family(self, graph_task: int) -> list[int]:
        """A graph task, and the reentrant ones inside it; parents come before their children."""
        found = {graph_task: None}
        for number, task in self.graph_tasks.items():
            if task.parent in found:
                found[number] = None
        return list(found)

    @cached_property
    def has_shortcuts(self) -> bool:
        """Whether the recording was closed, and what speeds up reading it was stored."""
        return self.meta.end_ns is not None and bool(
            self._database.value("SELECT EXISTS (SELECT 1 FROM anchor)")
        )

    @cached_property
    def blocks(self) -> NodeBlocks:
        """Where events stand that concern a node."""
        return NodeBlocks(self._database)

    def _text(self, number: int) -> str:
        text = self._strings.get(number)
        if text is None:
            # Texts that are used together were written together.
            rows = self._database.texts(
                "SELECT id, text FROM string WHERE id BETWEEN ? AND ?", number, number + _TEXTS
            )
            self._strings.update(rows)
            text = self._strings.get(number)
            if text is None:
                raise self._database.damaged("a text is missing")
        return text

    def name(self, number: int) -> str:
        """A text on one line."""
        name = self._lines.get(number)
        if name is None:
            name = self._lines[number] = clean(self._text(number))
        return name

    def message(self, number: int) -> str:
        """The text of an exception."""
        return clean_message(self._text(number))

    def _read_executions(
        self, graph_task: int | None, only: int | None = None
    ) -> list[ExecutionRow]:
        """Those of the node ``only``, with an order of their own; None: of all nodes."""
        told = self._execution_events(graph_task, only)
        found = {row[3] for row in told}
        names = {
            number: self._short_names(number) if only is None else self._name_of(number, only)
            for number in found & self.graph_tasks.keys()
        }
        if len(names) < len(found):
            told = [row for row in told if row[3] in names]  # others were under way before
        try:
            return executions(told, names, self.meta.start_ns)
        except (IndexError, KeyError) as error:
            raise self._database.damaged("an event concerns a node that is not there") from error

    def _name_of(self, graph_task: int, node: int) -> dict[int, str]:
        rows = self._database.integers(
            "SELECT name FROM node WHERE graph_task = ? AND idx = ?", graph_task, node
        )
        return {node: self._short(rows[0][0])} if rows else {}

    def _execution_events(self, graph_task: int | None, only: int | None) -> list[tuple[int, ...]]:
        """Seq, t, thread, graph task, kind and node of the events that say what was executed."""
        columns = "seq, t, thread, graph_task, kind, node"
        task = None if graph_task is None else self.graph_tasks.get(graph_task)
        numbers: tuple[int, ...] = ()
        if graph_task is not None and only is not None:
            chosen = self.blocks.of(graph_task, only, _EXECUTION)
        elif task is not None:
            chosen, numbers = f"{EXECUTION} AND {DURING}", place(task)
        else:
            chosen, numbers = f"{EXECUTION} {along(graph_task)}", given(graph_task)
        rows = self._database.integers(
            f"SELECT {columns} FROM event WHERE {chosen} ORDER BY seq",  # noqa: S608
            *numbers,
        )
        if not {row[4] for row in rows} <= END.keys() | {STARTED}:
            raise self._database.damaged("an index does not fit its table")
        return rows

    def _read_columns(
        self, graph_task: int, only: int | None = None, most_outputs: int = _NEVER
    ) -> NodeColumns:
        """The nodes of a graph task; with ``only`` as much as that one's row is made of."""
        needed = (
            "SELECT ? UNION ALL SELECT * FROM (SELECT consumer FROM edge WHERE graph_task = ?"
            " AND producer = ? ORDER BY output LIMIT ?)"
        )
        numbered: list[tuple[Any, ...]] = self._database.numbers(
            "SELECT idx, sequence_nr, topological_nr, queue, num_inputs, dependencies, name,"  # noqa: S608
            " parameter, module, shapes, recorded FROM node WHERE graph_task = ?"
            f" {'' if only is None else f'AND idx IN ({needed})'} ORDER BY idx",
            graph_task,
            *(() if only is None else (only, graph_task, only, most_outputs)),
        )
        columns = list(zip(*numbered, strict=True)) or [()] * 11
        if any(None in columns[place] for place in (0, *range(2, 11))):
            raise self._database.damaged("a node lacks a fact")
        rows = [row[1:] for row in numbered]
        indexes, *_, names, parameters, modules, shapes, _ = columns
        if only is None:
            self._shorten(graph_task, indexes, names)
        edges = self._edges(graph_task, only, most_outputs)
        if only is None:
            executed = {row.node: row for row in self.executions(graph_task)}
        else:
            if not {edge[2] for edge in edges} <= set(indexes):
                raise self._database.damaged("an edge leads to a node that is not there")
            executed = self._execution_of(graph_task, only)
        checked = (
            f"{CHECK} AND graph_task = {graph_task:d}"
            if only is None
            else self.blocks.of(graph_task, only, [_CHECKED])
        )
        return NodeColumns(
            graph_task=graph_task,
            node=rows if only is None else dict(zip(indexes, rows, strict=True)),
            edges=edges,
            names={number: (self.name(number), self._short(number)) for number in set(names)},
            places={number: self.name(number) or None for number in {*parameters, *modules}},
            shapes={number: self._shapes(number) for number in set(shapes) if number},
            origins=self._origins(graph_task, only),
            stacks=self.stacks,
            executions=executed,
            ready=self._ready(graph_task, only),
            nonfinite={
                node: NonFinite(*counts)
                for node, *counts in self._database.integers(
                    f"SELECT node, sum(b), sum(c), sum(d) FROM event WHERE {checked} GROUP BY node"  # noqa: S608
                )
            },
        )

    def _execution_of(self, graph_task: int, node: int) -> dict[int, ExecutionRow]:
        rows = self._read_executions(graph_task, node)
        if not rows:
            return {}
        row = rows[-1]
        return {node: row._replace(order=self._order(graph_task, row.seq) if row.order else 0)}

    def _order(self, graph_task: int, seq: int) -> int:
        """Number of nodes taken up until then, counted from the last moment that was asked for."""
        begin = self.graph_tasks[graph_task].begin_seq
        known, order = self._counted.get(graph_task, (begin - 1, 0))
        low, high = sorted((known, seq))
        between = self._database.value(
            f"SELECT count(*) FROM event WHERE {EXECUTION} AND kind = ? AND graph_task = ?"  # noqa: S608
            " AND seq > ? AND seq <= ?",
            STARTED,
            graph_task,
            low,
            high,
        )
        order += between if seq > known else -between
        self._counted[graph_task] = seq, order
        return order

    def _ready(self, graph_task: int, only: int | None) -> frozenset[int]:
        """Nodes that were queued; asked for only where a graph task did not finish."""
        task = self.graph_tasks.get(graph_task)
        if task is None or task.status is GraphTaskStatus.FINISHED:
            return frozenset()
        kind = codec.KIND[events.QueuePush]
        numbers: tuple[int, ...] = ()
        if only is None:
            chosen, numbers = f"{DURING} AND kind = {kind}", place(task)
        else:
            chosen = self.blocks.of(graph_task, only, [kind])
        rows = self._database.integers(f"SELECT node FROM event WHERE {chosen}", *numbers)  # noqa: S608
        return frozenset(node for (node,) in rows)

    def _shapes(self, number: int) -> tuple[Shape, ...]:
        shapes = self._parsed.get(number)
        if shapes is None:
            try:
                shapes = tuple(
                    tuple(_is_a(int, size) for size in _is_a(list, json.loads(shape)))
                    for shape in self._text(number).split(";")
                )
            except (TypeError, ValueError, RecursionError) as error:
                raise self._database.damaged("a shape is none") from error
            self._parsed[number] = shapes
        return shapes


def _is_a(kind: type[Any], value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(kind)
    return value


def is_alive(pid: int) -> bool:
    """Whether there is a process of this number that runs: one that nobody waits for has ended."""
    try:
        if pid > 0:
            os.kill(pid, 0)
            with contextlib.suppress(OSError):  # where there is no /proc
                stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
                return stat.rpartition(")")[2].split()[:1] != ["Z"]
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return pid > 0
