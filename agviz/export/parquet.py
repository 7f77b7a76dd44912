"""A run as tables in Parquet files, for DuckDB, Polars, Spark; docs/formats.md describes them.

One rank after the other is read and written. A row group holds rows of one rank only, so that a
query for some ranks of thousands leaves those of the others unread.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq

from agviz.errors import AgvizError
from agviz.ranks.phases import Phases
from agviz.ranks.slow import held_stretches, overlap
from agviz.traces.rows import visible
from agviz.words.safe import clean

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agviz.ranks.facts import RankFacts
    from agviz.ranks.run import Run
    from agviz.traces.reader import Trace

_SMALL, _LARGE, _TEXT, _FLAG = pa.int32(), pa.int64(), pa.string(), pa.bool_()
_MOST_ROWS: Final = 100_000
"""In memory, and in a row group."""

TABLES: Final[dict[str, dict[str, Any]]] = {
    "ranks": {
        "rank": _SMALL,
        "world_size": _SMALL,
        "host": _TEXT,
        "backend": _TEXT,
        "pid": _LARGE,
        "file": _TEXT,
        "script": _TEXT,
        "engine": _TEXT,
        "torch": _TEXT,
        "started_unix_ns": _LARGE,
        "start_ns": _LARGE,
        "end_ns": _LARGE,
        "clock_offset_ns": _LARGE,
        "clock_error_ns": _LARGE,
        "clock_source": _TEXT,
        "passes": _SMALL,
        "ended": _TEXT,
    },
    "passes": {
        "rank": _SMALL,
        "pass": _SMALL,
        "graph_task": _LARGE,
        "step": _SMALL,
        "forward_ns": _LARGE,
        "begin_ns": _LARGE,
        "end_ns": _LARGE,
        "status": _TEXT,
        "error": _TEXT,
        "nodes": _LARGE,
        "edges": _LARGE,
        "fingerprint": _LARGE,
        "stage": _SMALL,
        "microbatch": _SMALL,
        "waiting_ns": _LARGE,
        "transfer_ns": _LARGE,
    },
    "nodes": {
        "rank": _SMALL,
        "pass": _SMALL,
        "graph_task": _LARGE,
        "node": _LARGE,
        "position": _LARGE,
        "name": _TEXT,
        "module": _TEXT,
        "parameter": _TEXT,
        "created_by": _TEXT,
        "thread": _TEXT,
        "start_ns": _LARGE,
        "end_ns": _LARGE,
        "self_ns": _LARGE,
        "held_ns": _LARGE,
        "status": _TEXT,
    },
    "collectives": {
        "rank": _SMALL,
        "pass": _SMALL,
        "is_inside": _FLAG,
        "node": _LARGE,
        "process_group": _TEXT,
        "group_name": _TEXT,
        "is_p2p": _FLAG,
        "seq": _LARGE,
        "operation": _TEXT,
        "shapes": _TEXT,
        "dtypes": _TEXT,
        "joined_ns": _LARGE,
        "waiting_ns": _LARGE,
        "transfer_ns": _LARGE,
        "last_rank": _SMALL,
        "joined_by": _SMALL,
        "is_retired": _FLAG,
        "ran_ns": _LARGE,
        "called_by": _TEXT,
    },
    "parameters": {
        "rank": _SMALL,
        "pass": _SMALL,
        "parameter": _TEXT,
        "shape": _TEXT,
        "dtype": _TEXT,
        "requires_grad": _FLAG,
        "kind": _TEXT,
        "unit": _TEXT,
        "bucket": _SMALL,
        "nbytes": _LARGE,
        "is_hooked": _FLAG,
    },
}
"""Columns of each table and their types."""


def write_tables(run: Run, folder: Path) -> None:
    """Write a file for each table into a folder, which is made where there is none.

    Raises:
        agviz.errors.AgvizError: there is something else in the folder, it can't be written, or a
            trace is damaged. What was begun is removed then, as after every other exception.
    """
    paths = {name: folder / f"{name}.parquet" for name in TABLES}
    try:
        folder.mkdir(exist_ok=True)
        others = sorted(set(folder.iterdir()) - set(paths.values()))
    except OSError as error:
        raise AgvizError(f"{clean(str(folder))} can't be written: {error.strerror}") from error
    if others:
        raise AgvizError(
            f"{clean(str(folder))} holds something else, like {clean(others[0].name)}; name a"
            " folder of its own with --output"
        )
    phases = Phases(run)
    try:
        with contextlib.ExitStack() as stack:
            tables = {
                name: stack.enter_context(_Table(path, TABLES[name]))
                for name, path in paths.items()
            }
            for file, trace in run.folder.traces():
                rows = _Rows(run, phases, run.ranks[file.number], trace)
                for name, table in tables.items():
                    table.add(getattr(rows, name)())
    except BaseException as error:
        for path in paths.values():
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise AgvizError(f"{clean(str(folder))} can't be written: {error.strerror}") from error
        raise


class _Table:
    """One file, open for writing."""

    def __init__(self, path: Path, columns: dict[str, Any]) -> None:
        self._schema = pa.schema(list(columns.items()))
        self._path = path

    def __enter__(self) -> Self:
        self._writer = pq.ParquetWriter(self._path, self._schema, compression="zstd")
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def add(self, rows: Iterator[tuple[Any, ...]]) -> None:
        """Write the rows of one rank."""
        columns: list[list[Any]] = [[] for _ in self._schema]
        for row in rows:
            for column, value in zip(columns, row, strict=True):
                column.append(value)
            if len(columns[0]) == _MOST_ROWS:
                self._flush(columns)
                columns = [[] for _ in self._schema]
        if columns[0]:
            self._flush(columns)

    def _flush(self, columns: list[list[Any]]) -> None:
        arrays = [
            pa.array(column, type=field.type)
            for column, field in zip(columns, self._schema, strict=True)
        ]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema), _MOST_ROWS)


class _Rows:
    """The rows of one rank, by table."""

    def __init__(self, run: Run, phases: Phases, rank: RankFacts, trace: Trace) -> None:
        self._run, self._phases, self._rank, self._trace = run, phases, rank, trace
        metas = {file.number: file.meta for file in run.folder.ranks}
        zero_ns = min(run.on_one_clock(number, meta.start_ns) for number, meta in metas.items())
        self._offset_ns = run.clocks[rank.number].offset_ns - zero_ns

    def _at(self, time_ns: int | None) -> int | None:
        """A time of the rank, since the first start of any."""
        return None if time_ns is None else time_ns + self._offset_ns

    def ranks(self) -> Iterator[tuple[Any, ...]]:
        """The rank itself."""
        meta, clock = self._rank.file.meta, self._run.clocks[self._rank.number]
        place = meta.rank
        yield (
            self._rank.number,
            1 if place is None else place.world_size,
            None if place is None else place.host,
            None if place is None else place.backend,
            meta.pid,
            clean(self._rank.file.path.name),
            meta.script,
            meta.engine,
            meta.torch,
            meta.started_unix_ns,
            self._at(meta.start_ns),
            self._at(meta.end_ns),
            clock.offset_ns,
            clock.error_ns,
            clock.source,
            len(self._rank.passes),
            meta.ended,
        )

    def passes(self) -> Iterator[tuple[Any, ...]]:
        """Its outermost calls of backward and grad."""
        held: dict[int, tuple[int, int]] = {}
        for one in self._rank.joined:
            meeting = self._phases.meeting(one.key) if one.is_inside else None
            if meeting is not None:
                waiting, transfer = held.get(one.ordinal, (0, 0))
                waiting += meeting.waiting_ns(self._rank.number)
                transfer += meeting.transfer_ns(self._rank.number)
                held[one.ordinal] = waiting, transfer
        for each in self._rank.passes:
            task = self._trace.graph_task(each.graph_task)
            yield (
                self._rank.number,
                each.ordinal,
                each.graph_task,
                each.step,
                self._at(each.forward_ns),
                self._at(each.begin_ns),
                self._at(each.end_ns),
                str(each.status),
                task.error,
                task.nodes,
                task.edges,
                each.fingerprint,
                None if each.stage is None else each.stage.stage,
                None if each.stage is None else each.stage.microbatch,
                *held.get(each.ordinal, (0, 0)),
            )

    def nodes(self) -> Iterator[tuple[Any, ...]]:
        """Executions of nodes, those of reentrant calls included."""
        threads = {thread.id: thread.name for thread in self._trace.threads}
        number = self._rank.number
        held = held_stretches(self._phases, number)
        ends = [stretch.end_ns for stretch in held]
        for each in self._rank.passes:
            for graph_task in self._trace.family(each.graph_task):
                nodes = self._trace.nodes(graph_task)
                executions = self._trace.executions(graph_task)
                times = self._trace.self_times(graph_task)
                for one, self_ns in zip(executions, times, strict=True):
                    node = nodes[one.node]
                    span = [one.start_ns, one.start_ns if one.end_ns is None else one.end_ns]
                    begin, end = (self._run.on_one_clock(number, time) for time in span)
                    yield (
                        number,
                        each.ordinal,
                        graph_task,
                        one.node,
                        one.order,
                        one.name,
                        node.module,
                        node.parameter,
                        node.line,
                        threads.get(one.thread),
                        self._at(one.start_ns),
                        self._at(one.end_ns),
                        self_ns,
                        overlap(held, ends, begin, end),
                        str(one.status),
                    )
                self._trace.forget()

    def collectives(self) -> Iterator[tuple[Any, ...]]:
        """Collectives that it joined."""
        known = {(one.group, one.is_p2p, one.seq): one for one in self._trace.collectives()}
        groups = {group.name: group.description for group in self._trace.process_groups()}
        for joined in self._rank.joined:
            one, meeting = known[joined.key], self._phases.meeting(joined.key)
            waiting = transfer = None
            if meeting is not None:
                waiting = meeting.waiting_ns(self._rank.number)
                if joined.is_inside:
                    transfer = meeting.transfer_ns(self._rank.number)
            ran = one.begin_ns is not None and one.end_ns is not None
            frame = visible(one.stack)
            yield (
                self._rank.number,
                joined.ordinal if joined.ordinal >= 0 else None,
                joined.is_inside,
                joined.node if joined.node >= 0 else None,
                one.group,
                groups.get(one.group),
                one.is_p2p,
                one.seq,
                one.operation,
                one.shapes,
                one.dtypes,
                self._at(one.time_ns),
                waiting,
                transfer,
                None if meeting is None else meeting.last,
                None if meeting is None else len(meeting.joined),
                one.is_retired,
                (one.end_ns or 0) - (one.begin_ns or 0) if ran else None,
                None if frame is None else str(frame),
            )

    def parameters(self) -> Iterator[tuple[Any, ...]]:
        """Parameters known at the first pass, and how gradients are synchronised since which."""
        ordinals = {one.graph_task: one.ordinal for one in self._rank.passes}
        first = self._rank.passes[0].graph_task if self._rank.passes else None
        known = [] if first is None else self._trace.parameters(first)
        by_name = {one.name: one for one in known}
        synchronised = self._trace.synchronised()
        for one in synchronised:
            row = by_name.get(one.parameter)
            shape = None if row is None or row.shape is None else str(list(row.shape))
            yield (
                self._rank.number,
                ordinals.get(one.since),
                one.parameter,
                shape,
                None if row is None else row.dtype,
                None if row is None else row.requires_grad,
                one.kind,
                one.unit,
                one.bucket,
                one.nbytes,
                one.is_hooked,
            )
        reduced = {one.parameter for one in synchronised}
        for row in known:
            if row.name not in reduced:
                shape = None if row.shape is None else str(list(row.shape))
                own = row.name, shape, row.dtype, row.requires_grad
                yield (self._rank.number, 0, *own, None, None, None, None, None)
