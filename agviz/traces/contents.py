"""What a trace file says, read once and turned into rows."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from agviz.traces import codec, module_states, seedings
from agviz.traces import events as trace_events
from agviz.traces.database import given, of
from agviz.traces.graph_tasks import (
    FACTS,
    GraphTaskFacts,
    GraphTasks,
    check_columns,
    count_executed,
    error_ids,
    read_columns,
    stored_columns,
)
from agviz.traces.rows import (
    Frame,
    GraphTaskStatus,
    Meta,
    Rank,
    SavedRow,
    ThreadRow,
)
from agviz.traces.schema import SOURCE_LIMIT
from agviz.traces.stacks import StoredStacks, inflated
from agviz.words.safe import clean, clean_message
from agviz_engine import events
from agviz_engine.events import CPU_QUEUE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agviz.traces.database import Database
    from agviz.traces.module_states import StateFact
    from agviz.traces.packed import Column
    from agviz.traces.rows import GraphTaskRow, Shape
    from agviz.traces.seedings import SeedFact
    from agviz_engine.events import Event

_TEXTS: Final = 255
"""How many more texts are read beside the one that is asked for."""
_NEVER: Final = 2**63 - 1
_QUERY: Final = 0x1000
"""PROCESS_QUERY_LIMITED_INFORMATION"""
_STILL_ACTIVE: Final = 259


class Contents:
    """The rows of a trace file at one moment; a file that grew needs a new one."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._some_graph_tasks: dict[int, GraphTaskRow | None] = {}
        self._strings: dict[int, str] = {0: ""}
        self._lines: dict[int, str] = {}
        """Texts on one line, by id."""
        self._parsed: dict[int, tuple[Shape, ...]] = {}
        """Shapes, by the id of their text."""

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
                engine=clean(_is_a(str, facts["engine"])),
                choice=clean(_is_a(str, facts["choice"])),
                thinned=clean(_is_a(str, facts.get("thinned", ""))),  # earlier recordings lack it
                check_forward=_is_a(bool, facts["check_forward"]),
                values=clean(_is_a(str, facts["values"])),
                values_stopped=clean(_is_a(str, facts["values_stopped"])),
                stopped=clean(_is_a(str, facts["stopped"])),
                ended=clean(_is_a(str, facts["ended"])),
                rank=_rank(facts["rank"]),
                end_unix_ns=(
                    None if facts["end_unix_ns"] is None else _is_a(int, facts["end_unix_ns"])
                ),
            )
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise self._database.damaged("it does not say what was recorded") from error

    @cached_property
    def averages_without_statistics(self) -> tuple[str, ...]:
        """Batch norms whose weight is averaged, and whose statistics are as they were made."""
        try:
            return tuple(
                clean(_is_a(str, name)) for name in self._fact("averages_without_statistics")
            )
        except (TypeError, ValueError, RecursionError) as error:
            raise self._database.damaged("names of modules are none") from error

    @cached_property
    def module_states(self) -> tuple[StateFact, ...]:
        """Loads and saves of states that do not do what they seem to."""
        try:
            return tuple(module_states.read(self._fact(module_states.FACT)))
        except (AttributeError, TypeError, ValueError, RecursionError) as error:
            raise self._database.damaged("states of modules are none") from error

    @cached_property
    def seedings(self) -> tuple[SeedFact, ...]:
        """Seeds that were set again and again while something was trained."""
        try:
            return tuple(seedings.read(self._fact(seedings.FACT)))
        except (AttributeError, TypeError, ValueError, RecursionError) as error:
            raise self._database.damaged("seeds are none") from error

    @cached_property
    def handed_in(self) -> dict[tuple[str, int], tuple[str, ...]]:
        """What the program calls the tensors of collectives, by process group and number."""
        try:
            return {
                (clean(_is_a(str, group)), _is_a(int, seq)): tuple(
                    clean(_is_a(str, name)) for name in _is_a(list, names)
                )
                for group, seq, names in self._fact("handed_in")
            }
        except (TypeError, ValueError, RecursionError) as error:
            raise self._database.damaged("names of tensors are none") from error

    def _fact(self, key: str) -> list[Any]:
        """A list in ``meta``; empty: it is not there."""
        rows = self._database.texts("SELECT key, value FROM meta LIMIT 100")
        facts = dict(cast("list[tuple[str, str]]", rows))
        found: list[Any] = _is_a(list, json.loads(facts.get(key, "[]")))
        return found

    @cached_property
    def module_flags(self) -> list[tuple[str, bool]]:
        """Modules with an attribute ``requires_grad`` that their parameters do not follow."""
        rows = self._database.texts("SELECT key, value FROM meta WHERE key = 'module_flags'")
        try:
            return [
                (clean(_is_a(str, path)), _is_a(bool, flag))
                for _, value in cast("list[tuple[str, str]]", rows)
                for path, flag in _is_a(list, json.loads(value))
            ]
        except (TypeError, ValueError, RecursionError) as error:
            raise self._database.damaged("flags of modules are none") from error

    @cached_property
    def repeated_modules(self) -> list[tuple[str, int, str]]:
        """Containers that hold one module several times: path, how often, first name."""
        try:
            return [
                (clean(_is_a(str, path)), _is_a(int, times), clean(_is_a(str, name)))
                for path, times, name in self._fact("repeated_modules")
            ]
        except (TypeError, ValueError, RecursionError) as error:
            raise self._database.damaged("containers of modules are none") from error

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
        for thread, queue in self.unknown_threads.items():
            name = f"pt_autograd_{queue}" if queue > CPU_QUEUE else f"thread {thread}"
            threads.setdefault(thread, ThreadRow(thread, name, queue, 0))
        for thread in self.graph_tasks.threads:
            threads.setdefault(thread, ThreadRow(thread, f"thread {thread}", CPU_QUEUE, 0))
        return [threads[number] for number in sorted(threads)]

    @cached_property
    def unknown_threads(self) -> dict[int, int]:
        """Threads that were at work before the recording began: their queues, by id."""
        if self.has_shortcuts:
            return {}  # where the recording was closed, they were introduced
        return trace_events.unknown_threads(self._database)

    @cached_property
    def graph_tasks(self) -> GraphTasks:
        """By id."""
        stored = self.stored
        columns = read_columns(self._database) if stored is None else stored[: len(FACTS)]
        return self._graph_tasks(columns)

    @cached_property
    def stored(self) -> list[Column] | None:
        """The columns of a closed recording; None: they were not stored."""
        return None if self.meta.end_ns is None else stored_columns(self._database)

    def graph_task(self, number: int) -> GraphTaskRow | None:
        """One of them, without reading the others where they are not known."""
        if "graph_tasks" in self.__dict__ or self.stored is not None or not 0 <= number <= _NEVER:
            return self.graph_tasks.get(number)
        if number not in self._some_graph_tasks:
            one = self._graph_tasks(read_columns(self._database, "id = ?", number))
            self._some_graph_tasks[number] = one.get(number)
        return self._some_graph_tasks[number]

    def _graph_tasks(self, columns: list[Column]) -> GraphTasks:
        check_columns(columns, self._database.damaged)
        count_executed(columns, lambda begins: trace_events.executed(self._database, begins))
        errors, messages = error_ids(columns)
        facts = GraphTaskFacts(
            columns,
            {number: self.name(number) for number in errors},
            {number: self.message(number) for number in messages},
            self.meta.start_ns,
            GraphTaskStatus.RUNNING if self.is_growing else GraphTaskStatus.CUT,
        )
        return GraphTasks(facts)

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

    def source(self, file: str) -> str:
        """Text of a file of source, by the name that frames have; empty: it is not stored."""
        for number, deflated in self._database.blobs("SELECT file, bytes FROM source_file"):
            if self.name(number) == file:
                try:
                    return inflated(deflated)
                except ValueError as error:
                    raise self._database.damaged(error) from error
        return ""

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
            shapes = self.shapes(shape) if shape else (None,)
            if len(shapes) != 1:
                raise self._database.damaged("a shape is none")
            found.append(SavedRow(index, self.name(name), shapes[0], self.name(dtype), nbytes))
        return found

    def events(self, rows: Iterable[Sequence[int | None]]) -> list[Event]:
        """The events that rows expand to; columns behind those of an event are not looked at.

        Raises:
            agviz.errors.TraceError: the file is damaged.
        """
        found: list[Event] = []
        zero, name, message = self.meta.start_ns, self.name, self.message
        try:
            for row in rows:
                if row[codec.KIND_COLUMN] == codec.BEGUN:
                    found.append(self._begun(row))
                else:
                    found += codec.decode(row, zero, name, message)
        except ValueError as error:
            raise self._database.damaged(error) from error
        return found

    def _begun(self, row: Sequence[int | None]) -> Event:
        seq, _, thread, number, *_ = row
        task = self.graph_task(-1 if number is None else number)
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
            task.traced,
        )

    @cached_property
    def has_shortcuts(self) -> bool:
        """Whether the recording was closed, and what speeds up reading it was stored."""
        return self.meta.end_ns is not None and bool(
            self._database.value("SELECT EXISTS (SELECT 1 FROM anchor)")
        )

    def shapes(self, number: int) -> tuple[Shape, ...]:
        """Shapes, by the id of their text."""
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


def _rank(facts: Any) -> Rank | None:
    if facts is None:
        return None
    local_rank = facts["local_rank"]
    return Rank(
        number=_is_a(int, facts["number"]),
        world_size=_is_a(int, facts["world_size"]),
        local_rank=None if local_rank is None else _is_a(int, local_rank),
        host=clean(_is_a(str, facts["host"])),
        boot=clean(_is_a(str, facts["boot"])),
        backend=clean(_is_a(str, facts["backend"])),
    )


def _is_a(kind: type[Any], value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(kind)
    return value


def is_alive(pid: int) -> bool:
    """Whether there is a process of this number that runs: one that nobody waits for has ended."""
    if os.name == "nt":
        return _is_alive_on_windows(pid)
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


def _is_alive_on_windows(pid: int) -> bool:
    """The same where ``os.kill(pid, 0)`` would interrupt the process: 0 is CTRL_C_EVENT."""
    kernel = getattr(ctypes, "windll").kernel32  # noqa: B009 - no such attribute elsewhere
    handle = kernel.OpenProcess(_QUERY, False, pid)
    if not handle:
        return False
    try:
        status = ctypes.c_ulong()
        is_known = kernel.GetExitCodeProcess(handle, ctypes.byref(status))
        return not is_known or status.value == _STILL_ACTIVE
    finally:
        kernel.CloseHandle(handle)
