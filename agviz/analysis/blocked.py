"""Why a thread waits: for a lock that somebody holds, for another thread, or for data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.analysis.lineage import is_checkpoint
from agviz.analysis.thread_status import inside_engine
from agviz.traces.rows import BOUNDED, OWN_PROCESS, visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.thread_status import ThreadStatus
    from agviz.traces.rows import DumpedWait, Frame

_LOCKS: Final = {"threading.Lock", "threading.RLock"}
_INSIDE: Final = ("threading.", "queue.", "concurrent.futures.")
"""Beginnings of the names of what only a thread of the same process ends."""
_NEEDED: Final = {
    "put": "take anything out of the full queue into which {} puts",
    "get": "put anything into the empty queue from which {} gets",
    "wait": "set or notify what {} waits for",
    "join": "call task_done for {}",
}
"""What has to happen, by the name of the function in which a thread waits for it."""
_JOINS: Final = ("Thread.join",)
_FILES: Final = ("fcntl.", "sqlite3.")
"""Beginnings of the names of what waits for the lock of a file."""
_TAKES: Final = ("get", "recv", "recv_bytes", "readline", "read", "recv_into", "accept")
"""Last names of what gives each thing only once."""
FOREVER: Final = "So none of them goes on"
"""Where threads wait for each other."""
_OF_A_LOCK: Final = f"{FOREVER}: release it before waiting."
_MOST_THREADS: Final = 4


def none_goes_on(threads: Sequence[ThreadStatus]) -> bool:
    """Whether all threads wait without a timeout for what only one of them can bring about."""
    waits = [status.wait for status in threads]
    return bool(waits) and all(
        wait is not None and wait.what.startswith(_INSIDE) and not wait.what.endswith(BOUNDED)
        for wait in waits
    )


def who_is_gone(threads: Sequence[ThreadStatus]) -> Iterator[str]:
    """What those wait for that wait for no thread, where none is left to bring it about."""
    for status in threads:
        method = "" if status.wait is None else status.wait.what.rpartition(".")[2]
        if status.wait is not None and not status.wait.holder and method in _NEEDED:
            yield f"No thread is left to {_NEEDED[method].format(status.name)}."


def why_it_waits(status: ThreadStatus, threads: Sequence[ThreadStatus]) -> Iterator[str]:
    """What a thread waits for, who has it, and what that waits for, in sentences.

    Args:
        status: the thread.
        threads: all threads.
    """
    inside = inside_engine(status.stack)
    is_again = any(map(is_checkpoint, inside))
    wait = status.wait
    if is_again:
        yield "It computes the forward of a checkpoint again."
    if wait is None:
        return
    yield from _chain(status, wait, threads)
    if is_again and wait.what.removesuffix(BOUNDED).rpartition(".")[2] in _TAKES:
        yield (
            "What the forward took there once is asked for a second time by the recomputation: take"
            " it outside of the checkpointed function, and pass it in."
        )


def _chain(
    status: ThreadStatus, wait: DumpedWait, threads: Sequence[ThreadStatus]
) -> Iterator[str]:
    seen, subject = [status.native_id], "It"
    for _ in range(_MOST_THREADS):
        yield f"{subject} waits {_for(wait, seen)}."
        if wait.holder in seen:
            is_in_turn = f"{FOREVER}." if wait.held_at is None else _OF_A_LOCK
            yield _itself(wait) if len(seen) == 1 else is_in_turn
            return
        other = next(
            (each for each in threads if wait.holder and each.native_id == wait.holder), None
        )
        if other is None:
            yield from _of_file(wait)
            return
        if other.wait is None:
            at = visible(other.stack)
            if at is not None and at != wait.held_at:
                yield f"{other.name} is at {at}."
            return
        seen.append(other.native_id)
        at = visible(other.stack)
        where = "" if at is None else f" is at {_short(at)} and"
        subject, wait = f"{other.name}{where}", other.wait


def _for(wait: DumpedWait, seen: Sequence[int]) -> str:
    """What is waited for, and who has it."""
    if wait.what in _LOCKS:
        lock = f"for a {wait.what}"
        at = "" if wait.held_at is None else f", taken at {_short(wait.held_at)}"
        if wait.holder and wait.holder == seen[-1]:
            return f"{lock} that the same thread holds{at}"
        return f"{lock} that {wait.name} holds{at}" if wait.name else lock
    who = ""
    if wait.name and wait.what.startswith(_FILES):
        itself = " itself" if wait.name == OWN_PROCESS else ""
        who = f", while {wait.name}{itself} holds the lock of a file"
    elif wait.name:
        who = f" for the thread {wait.name}"
        if not wait.what.endswith(_JOINS):
            who = f", for what the thread {wait.name} is at"
    return f"in {wait.what}{who}"


def _of_file(wait: DumpedWait) -> Iterator[str]:
    """What to do about the lock of a file that the process has itself."""
    if wait.name != OWN_PROCESS or not wait.what.startswith(_FILES):
        return
    if wait.what.startswith("sqlite3."):
        yield (
            "If that is an open transaction of another connection to this database, commit it"
            " before backward, or use one connection."
        )
    else:
        yield (
            "A file that is opened twice has two locks, of which one waits for the other: release"
            " it before backward, or pass the open file on."
        )


def _short(frame: Frame) -> str:
    return f"{frame.file}:{frame.line}"


def _itself(wait: DumpedWait) -> str:
    if wait.what == "threading.Lock":
        return (
            "A Lock can't be taken twice: call backward before it is taken, or make it a"
            " threading.RLock."
        )
    return f"{FOREVER}."
