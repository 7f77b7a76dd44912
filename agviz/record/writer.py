"""Writing the trace file: batches of events in, SQLite rows out.

A :class:`Writer` belongs to the one thread that drains a recorder. SQLite works without the
interpreter lock, but Python's ``executemany`` takes the lock anew for each row and would starve
beside a busy engine; so many rows go into one statement.
"""

from __future__ import annotations

import functools
import itertools
import json
import os
import sqlite3
from itertools import chain, repeat
from operator import itemgetter, le
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from agviz.measure.values import NUMBERS
from agviz.record.deleting import delete
from agviz.record.descriptors import Descriptors, FilesLostError, leave_open
from agviz.record.forward_ops import ForwardOps
from agviz.record.retention import SHARE_OF_EVENTS, Retention
from agviz.record.tensor_types import TensorTypes
from agviz.traces import codec, schema
from agviz.traces.held import LetGo
from agviz.traces.intervals import Moments
from agviz.traces.left_out import LeftOut
from agviz.traces.roots import Roots
from agviz.traces.stacks import Stacks
from agviz.words.safe import storable
from agviz_engine.events import (
    NO_GRAPH_TASK,
    DependenciesComputed,
    Event,
    GraphTaskBegun,
    GraphTaskFailed,
    GraphTaskFinished,
    InferenceWithdrawn,
    WorkerStarted,
)
from agviz_engine.finalizers import give_way, while_waiting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from agviz.measure.values import Health
    from agviz.record.copies import CopiedBytes, Copy
    from agviz.record.journal import Journal
    from agviz.record.modified import Modified
    from agviz.record.names import KnownParameters
    from agviz.traces.distributed import OfRank
    from agviz.traces.dumps import CallSite, Dump, Raised
    from agviz.traces.elements import LocatedElements
    from agviz.traces.held import Held
    from agviz.traces.hook_counts import HookCount
    from agviz.traces.isolated import Isolated
    from agviz.traces.live_graphs import LiveGraphsLook
    from agviz.traces.native_calls import NativeCall
    from agviz.traces.optimizer_steps import OptimizerStep
    from agviz.traces.rows import Frame
    from agviz.traces.run_facts import ForwardCalls
    from agviz.traces.stacks import SourceReader
    from agviz.traces.step_facts import StepRow

PAGE_BYTES: Final = 4096
PAGE_BYTES_FOR_VALUES: Final = 16_384
"""Gradients are written almost twice as fast with it; each table takes up at least one page."""
_MOST_ROWS: Final = 128
"""In one statement."""
_MOST_AT_ONCE: Final = 1024
"""Of the events that wait, so many are put in order and written before they are let go of."""
_TIMES_SMALLER: Final = 4
"""Is each statement than the next, so that there are few and SQLite knows most of them."""
_STATEMENTS_KEPT: Final = 60
"""Each takes some 100 bytes a value."""
_CACHE_KIB: Final = 512
"""SQLite's, while the recording goes on: rows are put at the ends of tables."""
_CACHE_KIB_FOR_INDEXES: Final = 2_000
"""As much as SQLite takes by itself."""
_MOST_SETS: Final = 1_000
"""Sets of parameters remembered in memory."""
_MOST_STRINGS: Final = 100_000
"""Texts remembered in memory; after that the table may hold a text twice."""

FORGOTTEN: Final = "given up for newer values"
"""Why a copy that waited is not in the file."""
_SEQUENCE_NR: Final = 2
_MODULE: Final = 8
_PARAMETER: Final = 7
"""Among the columns of nodes, without the module's."""
_NODE_TEXTS: Final = (1, 7, 8, 9)
_HEALTH_COLUMNS: Final = NUMBERS - 1
_EDGE_FIELDS: Final = 4
_SAVED_FIELDS: Final = 6
_PAGES_IN_WAL: Final = 1_000
"""As SQLite has it by itself, where a file may become large."""
_PARTS_OF_WAL: Final = 16
"""The WAL of a file of limited size takes up about one part in so many of it."""
_COLUMNS: Final = {
    "frame": 5,
    "stack": 3,
    "source_line": 3,
    "source_file": 2,
    "tensor_type": 9,
}
_NETWORK_FILE_SYSTEMS: Final = frozenset(
    {"9p", "afs", "ceph", "cifs", "fuse.sshfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "smb3"}
)


class Graph(NamedTuple):
    """The nodes and edges of a graph task, on their way to the file."""

    graph_task: int
    nodes: tuple[Sequence[Any], ...]
    """Idx, name, sequence_nr (-1: none), topological_nr, queue, num_inputs, dependencies,
    parameter, shapes and recorded, each of all nodes, as in the ``node`` table but with the texts
    themselves. Only one value is there where it is the same for all."""
    modules: Callable[[], Sequence[str]]
    """The column that is missing there, behind the parameters."""
    edges: list[int]
    """Producer, output, consumer and slot of each, as in the ``edge`` table, one behind the other:
    see :mod:`agviz.record.journal`."""

    @property
    def parameters(self) -> Sequence[str]:
        """Their names by node, empty where there is none; only one where it is the same for all."""
        return self.nodes[_PARAMETER]


class Origins(NamedTuple):
    """Where the nodes of a graph task come from, on its way to the file."""

    graph_task: int
    stacks: Callable[[], list[tuple[Frame, ...]]]
    """By node: the stack that created it, outermost frame first; empty where not known. To ask is
    dear."""
    saved: list[int | str | None]
    """Node, number, name, shape, dtype and bytes of each tensor, as in the ``saved`` table but with
    the texts themselves."""


class SavedHealth(NamedTuple):
    """What a node had saved that made something non-finite, on its way to the file."""

    graph_task: int
    node: int
    values: list[tuple[str, str, str | None, Health | None]]
    """Name, name of the parameter or nothing, text of what is no tensor, and what was measured."""
    table: str = "saved_health"
    """Or ``root_saved``."""


class Parameters(NamedTuple):
    """Which parameters were known when the dependencies of a graph task were computed."""

    graph_task: int
    known: KnownParameters


class Introduction(NamedTuple):
    """A thread that was at work before the recording began, as in the ``thread`` table."""

    thread: int
    name: str
    queue: int
    native_id: int


SideRow: TypeAlias = (
    "Graph | Origins | SavedHealth | Parameters | ForwardOps | Introduction"
    " | CallSite | Modified | Dump | Raised | NativeCall | Roots | OptimizerStep | Held | LetGo"
    " | ForwardCalls | Isolated | LocatedElements | OfRank | LiveGraphsLook | HookCount | StepRow"
    " | LeftOut"
)
"""What goes to the file next to the rows of events."""


class Writer:
    """An open trace file. All methods are called by one thread; any may raise sqlite3.Error.

    Args:
        path: the file, made by :func:`create`.
        start_ns: of the recording.
        sources: gives the source of frames; None: nobody does.
    """

    def __init__(self, path: Path, start_ns: int, sources: SourceReader | None = None) -> None:
        self._start_ns = start_ns
        self.retention: Retention | None = None
        """What chooses the passes that stay; None: all do."""
        self._strings: dict[str, int] = {"": 0}
        self._next_string = 1
        self._next_chunk = 1
        self._new_strings: list[tuple[int, str]] = []
        self._next_measured = 1
        self._new_measured: list[Any] = []
        self._parameters: dict[Any, int] = {}
        """Numbers of sets, by their facts."""
        self._next_parameters = 1
        self._first_early = 0
        """Id of the first torch function whose graph task may not have begun yet."""
        self._tensor_types = TensorTypes(self._string)
        self._stacks = Stacks(self._string, sources)
        self._database = sqlite3.connect(
            path, timeout=30.0, isolation_level=None, cached_statements=_STATEMENTS_KEPT
        )
        if on_local_disk(path):
            self._database.execute("PRAGMA journal_mode = WAL")
            # Only who has read once holds the lock by which others see that the file is in use.
            self._database.execute("SELECT count(*) FROM meta").fetchone()
        self._descriptors = Descriptors(path)
        self._database.execute("PRAGMA synchronous = NORMAL")
        self._database.execute(f"PRAGMA cache_size = -{_CACHE_KIB:d}")
        self._database.execute("PRAGMA temp_store = MEMORY")
        self._bookkeeping: dict[type[Event], Callable[[Any], None]] = {
            GraphTaskBegun: self._begin_graph_task,
            DependenciesComputed: self._size_graph_task,
            GraphTaskFinished: self._finish_graph_task,
            GraphTaskFailed: self._fail_graph_task,
            InferenceWithdrawn: self._withdraw_inference,
            WorkerStarted: self._add_thread,
        }
        self._write_side: dict[type, Callable[[Any], None]] = {
            Graph: self._write_graph,
            Origins: self._write_origins,
            SavedHealth: self._write_saved_health,
            Parameters: self._write_parameters,
            ForwardOps: self._write_forward,
            Roots: self._write_roots,
            Introduction: self._introduce,
            LetGo: self._let_go,
            LeftOut: self._leave_out,
        }

    def write(
        self, journal: Journal, side: Sequence[SideRow], counts: tuple[int, int] | None = None
    ) -> None:
        """Add a batch in one transaction: after a return it survives the process.

        Args:
            journal: what is taken out; more may be added behind it at the same time.
            side: graphs, where their nodes come from, and threads.
            counts: of the values to be taken (:attr:`Journal.counts`); None: all.
        """
        events, numbers = journal.counts if counts is None else counts
        self._descriptors.check()
        self._database.execute("BEGIN IMMEDIATE")
        try:
            self._insert_events(journal.events, events)
            self._insert_numbers(journal.numbers, numbers)
            for thing in side:
                self._write_side.get(type(thing), self._write_rows)(thing)
            self._insert("measured", self._new_measured, columns=_HEALTH_COLUMNS)
            self._new_measured = []
            new_types = self._tensor_types.taken()
            self._insert("tensor_type", new_types, columns=_COLUMNS["tensor_type"])
            self._insert("string", list(chain.from_iterable(self._new_strings)), columns=2)
            self._new_strings = []
            self._descriptors.check()
            self._database.execute("COMMIT")
        except FilesLostError:
            raise
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise

    def write_meta(self, facts: Mapping[str, Any]) -> None:
        """Set some of the facts in ``meta``."""
        self._descriptors.check()
        write_meta(self._database, facts)

    def build_indexes(self) -> None:
        """Have events be found by what they are and where; done once, at the end."""
        self._descriptors.check()
        self._database.execute(f"PRAGMA cache_size = -{_CACHE_KIB_FOR_INDEXES:d}")
        last = *schema.FIND_MOMENTS, schema.FILL_EXECUTED, schema.FILL_NODE_BLOCK
        for statement in (*schema.INDEXES.values(), *last):
            give_way()
            while_waiting(self._database.execute, statement)  # it may take seconds

    def moments(self, graph_task: int) -> list[tuple[int | None, ...]]:
        """:class:`agviz.traces.intervals.Moments` of its nodes, once indexes were built."""
        return self._database.execute(
            f"SELECT {', '.join(Moments._fields)} FROM temp.moments WHERE graph_task = ?",  # noqa: S608
            (graph_task,),
        ).fetchall()

    @property
    def size(self) -> int:
        """Bytes of the file once everything written is in it."""
        (size,) = self._database.execute(
            "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
        ).fetchone()
        return int(size)

    @property
    def used(self) -> int:
        """Bytes of the pages in which something is written."""
        self._descriptors.check()
        (used,) = self._database.execute(
            "SELECT (page_count - freelist_count) * page_size"
            " FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
        ).fetchone()
        return int(used)

    def limit(self, size: int) -> None:
        """Let SQLite refuse to make the file larger than ``size`` bytes; leave passes out."""
        (page,) = self._database.execute("PRAGMA page_size").fetchone()
        self._database.execute(f"PRAGMA max_page_count = {max(1, size // page):d}")
        most_in_wal = min(_PAGES_IN_WAL, size // page // _PARTS_OF_WAL)
        self._database.execute(f"PRAGMA wal_autocheckpoint = {max(1, most_in_wal):d}")
        self.retention = Retention(int(size * SHARE_OF_EVENTS), self.used)

    def make_room(self, more: int) -> bool:
        """Leave out passes until there is room for ``more`` bytes; whether there is.

        Without a limit, there always is.
        """
        retention = self.retention
        if retention is None:
            return True
        used = self.used
        retention.look(used)
        while missing := retention.missing(used, more):
            gone = retention.leave_out(missing)
            if not gone:
                return False
            delete(self._database, gone, retention.left_out)
            used = self.used
            retention.look(used)
        return True

    def store(self, table: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Add rows to a table that is worked out from the others, in one transaction."""
        if rows:
            self._descriptors.check()
            self._database.execute("BEGIN IMMEDIATE")
            self._insert(table, list(chain.from_iterable(rows)), columns=len(rows[0]))
            self._database.execute("COMMIT")

    def close(self) -> None:
        """Leave one self-contained file behind."""
        try:
            self._descriptors.check()
        except FilesLostError:
            leave_open(self._database)
            return
        try:
            self._database.execute("PRAGMA busy_timeout = 500")
            self._database.execute("PRAGMA journal_mode = DELETE")
        except sqlite3.OperationalError:
            pass  # a viewer reads it at this moment: it stays a file with a WAL, complete as well
        finally:
            self._database.close()

    def _string(self, text: str) -> int:
        number = self._strings.get(text)
        if number is None:
            if len(self._strings) > _MOST_STRINGS:
                self._strings = {"": 0}
            number = self._strings[text] = self._next_string
            self._next_string += 1
            self._new_strings.append((number, storable(text, schema.TEXT_LIMIT)))
        return number

    def _numbers(self, texts: Sequence[str]) -> list[int]:
        numbers = {text: self._string(text) for text in dict.fromkeys(texts)}
        return [numbers[text] for text in texts]

    def _insert_events(self, waiting: list[Any], count: int) -> None:
        """Insert the events in the first ``count`` values, and take them out."""
        for begin in range(0, count, _MOST_AT_ONCE * codec.WIDTH):
            end = min(count - begin, _MOST_AT_ONCE * codec.WIDTH)
            rows = waiting[:end]
            if not codec.ODD.isdisjoint(rows[codec.KIND_COLUMN :: codec.WIDTH]):
                rows = self._without_objects(rows)
            if self.retention is not None:
                self.retention.count(rows)
            rows = _in_order(rows, codec.WIDTH)
            for size, part in _parts(rows, codec.WIDTH):
                self._database.execute(codec.insertion(size), [self._start_ns, *part])
            del waiting[:end]
            give_way()

    def _without_objects(self, given: list[Any]) -> list[Any]:
        """Rows that SQLite can take. What else they say is written here."""
        rows: list[Any] = []
        copies: list[tuple[int, int, Copy]] = []
        for row in codec.each(given):
            kind, thing = row[codec.KIND_COLUMN], row[codec.OBJECT_COLUMN]
            if kind not in codec.ODD:
                rows += row
            elif kind == codec.COPIED:
                copies.append((row[0], row[codec.GRAPH_TASK_COLUMN], thing))
            else:
                if (note := self._bookkeeping.get(type(thing))) is not None:
                    note(thing)
                rows += codec.encode(thing, self._string)
        self._insert_copies(copies)
        return rows

    def _insert_numbers(self, waiting: list[Any], count: int) -> None:
        """Insert the health in the first ``count`` values, and take them out."""
        type_of = self._tensor_types.of
        for begin in range(0, count, _MOST_AT_ONCE * NUMBERS):
            end = min(count - begin, _MOST_AT_ONCE * NUMBERS)
            rows = waiting[:end]
            if self.retention is not None:
                for place in range(0, end, NUMBERS):
                    if any(rows[place + 3 : place + 6]):
                        self.retention.failed(rows[place + 1])
            rows[2::NUMBERS] = map(type_of, rows[2::NUMBERS])
            del rows[1::NUMBERS]
            self._insert("health", _in_order(rows, _HEALTH_COLUMNS), columns=_HEALTH_COLUMNS)
            del waiting[:end]

    def _insert_copies(self, copies: Iterable[tuple[int, int, Copy]]) -> None:
        tensors: list[int] = []
        parts: list[int] = []
        text = self._string
        for seq, graph_task, copy in copies:
            unknown = copy.unknown
            if not all(part.contents.is_there for part in copy.parts):
                unknown = FORGOTTEN
            facts = text(copy.dtype), text(copy.shape), text(copy.layout)
            tensors += seq, *facts, copy.coalesced, text(unknown)
            if unknown:
                continue
            before = self._next_chunk
            for part in copy.parts:
                chunk = self._chunk_of(part.contents)
                parts += seq, text(part.name), text(part.dtype), text(part.shape), chunk
            if self.retention is not None:
                self.retention.copied(graph_task, range(before, self._next_chunk))
        self._insert("tensor", tensors, columns=6)
        self._insert("part", parts, columns=5)

    def _chunk_of(self, contents: CopiedBytes) -> int:
        """Write the bytes, unless they were; their first chunk."""
        if contents.data is None:
            return contents.chunk or 0
        first = self._next_chunk if contents.nbytes else 0
        with memoryview(contents.data) as data:
            for start in range(0, len(data), schema.CHUNK_BYTES):
                with data[start : start + schema.CHUNK_BYTES] as piece:
                    self._database.execute(
                        "INSERT INTO chunk VALUES (?, ?)", (self._next_chunk, piece)
                    )
                self._next_chunk += 1
        contents.written(first)
        return first

    def _insert(self, table: str, values: Sequence[Any], columns: int) -> None:
        """Insert rows that follow each other in ``values``."""
        for size, part in _parts(values, columns):
            self._database.execute(_insertion(table, columns, size), part)
        give_way()

    def _begin_graph_task(self, event: GraphTaskBegun) -> None:
        if self.retention is not None:
            self.retention.begun(event.graph_task, event.parent, event.seq)
        row = (
            event.graph_task,
            event.parent,
            event.parent_node,
            event.reentrant_depth,
            event.keep_graph,
            event.create_graph,
            event.accumulate_grad,
            event.roots,
            event.inputs,
            event.thread,
            event.seq,
            event.time_ns - self._start_ns,
            *(0, 0, None, None, 0, 0, None),
            *(event.traced, None),
        )
        self._insert("graph_task", row, columns=len(row))

    def _size_graph_task(self, event: DependenciesComputed) -> None:
        self._database.execute(
            "UPDATE graph_task SET nodes = ?, edges = ? WHERE id = ?",
            (event.nodes, event.edges, event.graph_task),
        )

    def _finish_graph_task(self, event: GraphTaskFinished) -> None:
        if self.retention is not None:
            self.retention.ended(event.graph_task, has_failed=False)
        self._database.execute(
            "UPDATE graph_task SET end_seq = ?, end_t = ?, executed = ? WHERE id = ?",
            (event.seq, event.time_ns - self._start_ns, event.executed, event.graph_task),
        )

    def _withdraw_inference(self, event: InferenceWithdrawn) -> None:
        self._database.execute(
            "UPDATE graph_task SET withdrawn = ? WHERE id = ?", (event.seq, event.graph_task)
        )

    def _fail_graph_task(self, event: GraphTaskFailed) -> None:
        if self.retention is not None:
            self.retention.ended(event.graph_task, has_failed=True)
        self._database.execute(
            "UPDATE graph_task SET end_seq = ?, end_t = ?, error = ?, message = ? WHERE id = ?",
            (
                event.seq,
                event.time_ns - self._start_ns,
                self._string(event.error),
                self._string(event.message),
                event.graph_task,
            ),
        )

    def _add_thread(self, event: WorkerStarted) -> None:
        row = (event.thread, self._string(event.name), event.queue, event.native_id)
        self._insert("thread", row, columns=4)

    def _introduce(self, thread: Introduction) -> None:
        """Name a thread, unless its ThreadStarted has: that knows which queue it serves."""
        row = (thread.thread, self._string(thread.name), thread.queue, thread.native_id)
        self._database.execute("INSERT OR IGNORE INTO thread VALUES (?, ?, ?, ?)", row)

    def _let_go(self, gone: LetGo) -> None:
        self._database.execute(
            "UPDATE held SET end_t = ? WHERE id = ?", (gone.since_ns, gone.number)
        )

    def _leave_out(self, passes: LeftOut) -> None:
        """Note passes that were not recorded."""
        known = [passes]
        if self.retention is not None:
            known = self.retention.never_had(passes)
            self._database.execute("DELETE FROM left_out")
        self._insert("left_out", list(chain.from_iterable(known)), columns=len(passes))

    def _write_origins(self, origins: Origins) -> None:
        task = origins.graph_task
        stacks = [self._stacks.number(stack) for stack in origins.stacks()]
        rows = chain.from_iterable(
            (task, node, stack) for node, stack in enumerate(stacks) if stack
        )
        values = [self._string(v) if isinstance(v, str) else v for v in origins.saved]
        saved = _rows(repeat(task), *_columns(values, _SAVED_FIELDS))
        self._write_stacks()
        self._insert("origin", list(rows), columns=3)
        self._insert("saved", saved, columns=1 + _SAVED_FIELDS)

    def _write_rows(
        self,
        thing: CallSite
        | Modified
        | Dump
        | Raised
        | NativeCall
        | OptimizerStep
        | Held
        | ForwardCalls
        | Isolated
        | LocatedElements
        | OfRank
        | LiveGraphsLook
        | HookCount
        | StepRow,
    ) -> None:
        for table, row in thing.rows(self._string, self._stacks.number):
            self._insert(table, row, columns=len(row))
        self._write_stacks()

    def _write_saved_health(self, saved: SavedHealth) -> None:
        rows: list[Any] = []
        for number, (name, parameter, value, health) in enumerate(saved.values):
            rows += saved.graph_task, saved.node, number, self._string(name)
            rows += self._string(parameter), None if value is None else self._string(value)
            rows.append(None if health is None else self._measured(health))
        self._insert(saved.table, rows, columns=7)

    def _write_roots(self, roots: Roots) -> None:
        if self.retention is not None and not all(each.is_finite for _, each in roots.measured):
            self.retention.failed(roots.graph_task)
        self._insert("root", roots.rows(self._measured), columns=3)

    def _measured(self, health: Health) -> int:
        """The id of a row of ``measured``, which is written with the rest."""
        number = self._next_measured
        self._next_measured += 1
        self._new_measured += number, self._tensor_types.of(health.tensor_type), *health.figures
        return number

    def _write_parameters(self, parameters: Parameters) -> None:
        facts, had_grad = parameters.known
        number = self._parameters.get(facts)
        if number is None:
            if len(self._parameters) > _MOST_SETS:
                self._parameters.clear()
            number = self._parameters[facts] = self._next_parameters
            self._next_parameters += 1
            rows: list[Any] = []
            for place, (name, shape, dtype, requires_grad, norm) in enumerate(facts):
                texts = self._string(name), self._string(shape), self._string(dtype)
                rows += number, place, *texts, requires_grad, norm
            self._insert("parameter", rows, columns=7)
        row = parameters.graph_task, number, self._string(had_grad)
        self._insert("parameters", row, columns=3)

    def _write_stacks(self) -> None:
        for table, new in self._stacks.taken().items():
            self._insert(table, new, columns=_COLUMNS[table])

    def _write_forward(self, forward: ForwardOps) -> None:
        ops: list[Any] = []
        tensors: list[Any] = []
        stacks = forward.resolve([op.captured for op in forward.ops])
        text = self._string
        for op, stack in zip(forward.ops, stacks, strict=True):
            ops += op.id, op.time_ns - self._start_ns, op.thread, text(op.name), text(op.arguments)
            ops += text(op.module), self._stacks.number(stack), op.grad_enabled, forward.graph_task
            ops += op.recomputed_in, op.sequence_nr, op.first_nr, op.end_nr, text(op.error)
            for number, tensor in enumerate((*op.inputs, *op.outputs)):
                place, identity, memory, version, parameter, shape, dtype, *truths, health = tensor
                tensors += op.id, number, number >= len(op.inputs), text(place), identity, memory
                tensors += version, text(parameter), text(shape), text(dtype), *truths
                tensors.append(None if health is None else self._measured(health))
            for located in op.located:
                self._write_rows(located)
        if forward.graph_task != NO_GRAPH_TASK:
            if self.retention is not None:
                called = range(self._first_early, forward.until)
                self.retention.called(forward.graph_task, called)
            self._database.execute(
                "UPDATE forward_op SET graph_task = ? WHERE graph_task = ? AND id BETWEEN ? AND ?",
                (forward.graph_task, NO_GRAPH_TASK, self._first_early, forward.until - 1),
            )
            self._first_early = forward.until
        self._write_stacks()
        self._insert("forward_op", ops, columns=14)
        self._insert("forward_tensor", tensors, columns=13)

    def _write_graph(self, graph: Graph) -> None:
        columns = list(graph.nodes)
        columns.insert(_MODULE, graph.modules())
        for start in range(0, len(columns[0]), _MOST_ROWS):
            end = start + _MOST_ROWS
            nodes = [c if len(c) == 1 else c[start:end] for c in columns]
            if min(nodes[_SEQUENCE_NR]) < 0:
                nodes[_SEQUENCE_NR] = [None if nr < 0 else nr for nr in nodes[_SEQUENCE_NR]]
            self._insert_columns("node", graph.graph_task, nodes, _NODE_TEXTS)
        for start in range(0, len(graph.edges), _MOST_ROWS * _EDGE_FIELDS):
            edges = graph.edges[start : start + _MOST_ROWS * _EDGE_FIELDS]
            self._insert_columns("edge", graph.graph_task, _columns(edges, _EDGE_FIELDS))

    def _insert_columns(
        self,
        table: str,
        graph_task: int,
        columns: list[Sequence[Any]],
        texts: Sequence[int] = (),
    ) -> None:
        """Insert rows of a graph task. What is the same in all of them is given to SQLite once.

        Args:
            table: its first column is the graph task.
            graph_task: that.
            columns: the others; the first says how many rows there are.
            texts: which of them are texts.
        """
        same = [number > 0 and c.count(c[0]) == len(c) for number, c in enumerate(columns)]
        for place in texts:
            few = columns[place][:1] if same[place] else columns[place]
            columns[place] = self._numbers(few)
        facts = [c[0] for c, is_same in zip(columns, same, strict=True) if is_same]
        others = [c for c, is_same in zip(columns, same, strict=True) if not is_same]
        for size, values in _parts(_rows(*others), len(others)):
            sql = _columns_insertion(table, tuple(same), size)
            self._database.execute(sql, [graph_task, *facts, *values])


def _in_order(values: list[Any], columns: int) -> list[Any]:
    """Rows that follow each other in ``values``, by their first columns.

    A row that comes before those of a former statement has SQLite split a page that was full.
    """
    firsts = values[::columns]
    if all(map(le, firsts, firsts[1:])):
        return values
    rows: list[tuple[Any, ...]] = sorted(
        zip(*[iter(values)] * columns, strict=True), key=itemgetter(0)
    )
    return list(chain.from_iterable(rows))


def _parts(values: Sequence[Any], columns: int) -> Iterator[tuple[int, Sequence[Any]]]:
    """Numbers of rows for which there are statements, and the values of as many."""
    begin, rows, size = 0, len(values) // columns, _MOST_ROWS
    while rows:
        while rows >= size:
            end = begin + size * columns
            yield size, values[begin:end]
            begin, rows = end, rows - size
        size = max(1, size // _TIMES_SMALLER)


@functools.cache
def _insertion(table: str, columns: int, rows: int) -> str:
    row = f"({','.join('?' * columns)})"
    return f"INSERT OR REPLACE INTO {table} VALUES {','.join([row] * rows)}"  # noqa: S608 - one of our tables


@functools.lru_cache(maxsize=1024)
def _columns_insertion(table: str, same: tuple[bool, ...], rows: int) -> str:
    """SQL that inserts rows whose graph task, and columns that are the ``same``, come first."""
    places = itertools.count(1)
    columns = ["?", *("?" if is_same else f"column{next(places)}" for is_same in same)]
    values = ",".join([f"({','.join('?' * same.count(False))})"] * rows)
    return f"INSERT OR REPLACE INTO {table} SELECT {','.join(columns)} FROM (VALUES {values})"  # noqa: S608 - one of our tables


def _rows(*columns: Iterable[Any]) -> list[Any]:
    """The values of a table row by row; the shortest column says how many."""
    return list(chain.from_iterable(zip(*columns, strict=False)))


def _columns(values: Sequence[Any], count: int) -> list[Sequence[Any]]:
    """The columns of rows that follow each other in ``values``."""
    return [values[place::count] for place in range(count)]


def write_meta(database: sqlite3.Connection, facts: Mapping[str, Any]) -> None:
    """Set some of the facts in ``meta``, as JSON."""
    database.executemany(
        "INSERT OR REPLACE INTO meta VALUES (?, ?)",
        [(key, json.dumps(value)) for key, value in facts.items()],
    )


def on_local_disk(path: Path) -> bool:
    """Whether the file system is one on which processes share memory, which a WAL needs."""
    try:
        mounts = Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return os.name == "posix"
    folder = os.fspath(path.resolve().parent)
    best, kind = "", ""
    for line in mounts.splitlines():
        _, mount, system, *_ = line.split(" ")
        mount = mount.replace(r"\040", " ")
        inside = folder == mount or folder.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, system
    return kind not in _NETWORK_FILE_SYSTEMS
