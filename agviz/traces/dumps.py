"""Reading what the threads were doing at moments when somebody asked or nothing moved."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from agviz.traces.rows import DumpedCall, DumpedThread, DumpRow

if TYPE_CHECKING:
    from agviz.traces.contents import Contents
    from agviz.traces.database import Database
    from agviz.traces.rows import Frame


def read(database: Database, contents: Contents) -> list[DumpRow]:
    """Those of all threads, in order of time.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    return _read(database, contents, "SELECT id FROM dump EXCEPT SELECT dump FROM raised")


def raised(database: Database, contents: Contents, graph_task: int) -> DumpRow | None:
    """What the thread was doing that raised in a graph task; None where that was not recorded.

    Of graph task -1: what raised the exception that ended the program.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    chosen = "SELECT dump FROM raised WHERE graph_task = ?"
    return next(iter(_read(database, contents, chosen, graph_task)), None)


def _read(database: Database, contents: Contents, chosen: str, *given: int) -> list[DumpRow]:
    text = contents.name
    calls: defaultdict[tuple[int, int], list[DumpedCall]] = defaultdict(list)
    for dump, thread, kind, graph_task, node, name, definition in database.integers(
        "SELECT dump, thread, kind, graph_task, node, name, definition FROM dump_call"  # noqa: S608
        f" WHERE dump IN ({chosen}) ORDER BY dump, thread, number",
        *given,
    ):
        frames = stack(database, contents, definition)
        where = frames[-1] if frames else None
        call = DumpedCall(text(kind), graph_task, node, text(name), where)
        calls[dump, thread].append(call)
    threads: defaultdict[int, list[DumpedThread]] = defaultdict(list)
    for dump, number, name, native_id, frames_of in database.integers(
        "SELECT dump, number, name, native_id, stack FROM dump_thread"  # noqa: S608
        f" WHERE dump IN ({chosen}) ORDER BY dump, number",
        *given,
    ):
        frames = stack(database, contents, frames_of)
        inside = tuple(calls[dump, number])
        threads[dump].append(DumpedThread(text(name), native_id, frames, inside))
    start_ns = contents.meta.start_ns
    return [
        DumpRow(t + start_ns, text(reason), tuple(threads[dump]))
        for dump, t, reason in database.integers(
            f"SELECT id, t, reason FROM dump WHERE id IN ({chosen}) ORDER BY t, id",  # noqa: S608
            *given,
        )
    ]


def call_site(database: Database, contents: Contents, graph_task: int) -> tuple[Frame, ...]:
    """Where the program called backward or grad, outermost frame first; empty where not known.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    rows = database.integers("SELECT stack FROM call_site WHERE graph_task = ?", graph_task)
    return stack(database, contents, rows[0][0]) if rows else ()


def stack(database: Database, contents: Contents, number: int) -> tuple[Frame, ...]:
    """A stack by its id, 0 for the empty one.

    Raises:
        agviz.errors.TraceError: the file has no such stack.
    """
    if not number:
        return ()
    if number not in contents.stacks:
        raise database.damaged("a stack is missing")
    return contents.stacks[number]
