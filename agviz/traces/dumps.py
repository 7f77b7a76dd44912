"""What the threads were doing when somebody asked or nothing moved: written and read."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.traces.rows import DumpedCall, DumpedThread, DumpedWait, DumpRow
from agviz_engine.events import NO_GRAPH_TASK

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from agviz.traces.contents import Contents
    from agviz.traces.database import Database
    from agviz.traces.rows import Frame


SIGNAL: Final = "signal"
TIMEOUT: Final = "timeout"
STALL: Final = "stall"
EXIT: Final = "exit"
RAISED: Final = "raised"


class CallSite(NamedTuple):
    """Where backward or grad was called, on its way to the file."""

    graph_task: int
    stack: Callable[[], tuple[Frame, ...]]
    """Outermost frame first, those of torch and agviz inside included. To ask is dear."""

    def rows(
        self, _text: Callable[[str], int], stack: Callable[[tuple[Frame, ...]], int]
    ) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Tables and the rows for them, as far as the innermost frame that is not hidden."""
        whole = self.stack()
        shown = max((i for i, frame in enumerate(whole) if not frame.hidden), default=-1)
        if number := stack(whole[: shown + 1]):
            yield "call_site", (self.graph_task, number)


class Dump(NamedTuple):
    """What all threads are doing, on its way to the file."""

    number: int
    since_ns: int
    """Time since the start of the recording."""
    reason: str
    threads: Sequence[DumpedThread]
    graph_task: int = NO_GRAPH_TASK

    def rows(
        self, text: Callable[[str], int], stack: Callable[[tuple[Frame, ...]], int]
    ) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Tables and the rows for them."""
        yield "dump", (self.number, self.since_ns, text(self.reason))
        for i, thread in enumerate(self.threads):
            facts = text(thread.name), thread.native_id, stack(thread.stack)
            yield "dump_thread", (self.number, i, *facts)
            for j, (kind, graph_task, node, name, definition) in enumerate(_calls(thread)):
                where = stack(()) if definition is None else stack((definition,))
                call = text(kind), graph_task, node, text(name), where
                yield "dump_call", (self.number, i, j, *call)


_WAIT: Final = "wait"
_HOLDER: Final = "holder"
"""Kinds of rows beside those of calls: what a thread waits for, and who has it."""


def _calls(thread: DumpedThread) -> tuple[DumpedCall, ...]:
    """The calls that a thread is in, after what it waits for."""
    if thread.wait is None:
        return thread.calls
    what, holder, name, held_at = thread.wait
    return (
        DumpedCall(_WAIT, NO_GRAPH_TASK, 0, what, None),
        DumpedCall(_HOLDER, NO_GRAPH_TASK, holder, name, held_at),
        *thread.calls,
    )


def _dumped(
    name: str, native_id: int, stack: tuple[Frame, ...], calls: list[DumpedCall]
) -> DumpedThread:
    """The thread again."""
    beside = {call.kind: call for call in calls if call.kind in {_WAIT, _HOLDER}}
    wait = None
    if len(beside) > 1:
        holder = beside[_HOLDER]
        wait = DumpedWait(beside[_WAIT].name, holder.node, holder.name, holder.definition)
    inside = tuple(call for call in calls if call.kind not in beside)
    return DumpedThread(name, native_id, stack, inside, wait)


class Raised(NamedTuple):
    """Where the exception came from with which a graph task failed, on its way to the file."""

    graph_task: int
    dump: Dump

    def rows(
        self, text: Callable[[str], int], stack: Callable[[tuple[Frame, ...]], int]
    ) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Tables and the rows for them."""
        yield from self.dump.rows(text, stack)
        yield "raised", (self.graph_task, self.dump.number)


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
        threads[dump].append(_dumped(text(name), native_id, frames, calls[dump, number]))
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
