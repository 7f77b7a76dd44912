"""What a thread that stands still waits for, and who has it, held against what it really does."""

from __future__ import annotations

import contextlib
import fcntl
import queue
import socket
import sqlite3
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agviz.record.files import Files
from agviz.record.waiting import waits
from agviz.traces.rows import OWN_PROCESS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from agviz.traces.rows import DumpedWait

HAS_KERNEL_LOCKS = Path("/proc/locks").is_file()


class Things:
    """What threads wait for."""

    def __init__(self) -> None:
        self.reads = 0
        self.lock = threading.Lock()
        self.rlock = threading.RLock()
        self.queue: queue.Queue[int] = queue.Queue()
        self.event = threading.Event()
        self.ours, self.theirs = socket.socketpair()

    @property
    def counted(self) -> threading.Lock:
        """The lock, by code of the program."""
        self.reads += 1
        return self.lock

    def enter_counted(self) -> None:
        with self.counted:
            pass

    def enter(self) -> None:
        with self.lock:
            pass

    def acquire_for_long(self) -> None:
        if self.lock.acquire(timeout=60.0):
            self.lock.release()

    def receive(self) -> None:
        self.ours.recv(2)

    def get(self) -> None:
        self.queue.get()

    def get_for_long(self) -> None:
        self.queue.get(timeout=60.0)

    def enter_rlock(self) -> None:
        with self.rlock:
            pass


@pytest.fixture
def things() -> Iterator[Things]:
    found = Things()
    yield found
    found.ours.close()
    found.theirs.close()


@contextlib.contextmanager
def waiting(act: Callable[[], object]) -> Iterator[threading.Thread]:
    """A thread that is in the midst of something."""
    thread = threading.Thread(target=act, name="waiting", daemon=True)
    thread.start()
    yield thread


def seen(thread: threading.Thread, expected: str) -> DumpedWait | None:
    """What a thread waits for, once it is there."""
    found: DumpedWait | None = None
    for _ in range(400):
        found = waits(dict(sys._current_frames()), Files()).get(thread.ident or 0)
        if found is not None and found.what == expected:
            break
        time.sleep(0.02)
    return found


@pytest.mark.parametrize(
    ("act", "what", "release"),
    [
        (Things.receive, "socket.socket.recv", lambda things: things.theirs.send(b"ok")),
        (Things.get, "queue.Queue.get", lambda things: things.queue.put(1)),
        (Things.get_for_long, "queue.Queue.get with a timeout", lambda things: things.queue.put(1)),
        (lambda things: things.event.wait(), "threading.Event.wait", lambda t: t.event.set()),
    ],
)
def test_what_it_waits_in_is_named(
    things: Things,
    act: Callable[[Things], object],
    what: str,
    release: Callable[[Things], object],
) -> None:
    with waiting(lambda: act(things)) as thread:
        found = seen(thread, what)
        release(things)
        thread.join(30)
    assert found is not None
    assert (found.what, found.holder, found.held_at) == (what, 0, None)


def test_who_holds_a_lock_is_named_with_its_with(things: Things) -> None:
    with things.lock:  # held
        with waiting(things.enter) as thread:
            found = seen(thread, "threading.Lock")
        with waiting(things.acquire_for_long) as other:
            bounded = seen(other, "threading.Lock with a timeout")
    thread.join(30)
    other.join(30)
    assert found is not None
    assert (found.holder, found.name) == (threading.get_native_id(), "MainThread")
    rows = Path(__file__).read_text(encoding="utf-8").splitlines()
    held = next(i for i, row in enumerate(rows, 1) if row.endswith("# held"))
    assert found.held_at is not None
    assert (found.held_at.line, found.held_at.function) == (held, sys._getframe().f_code.co_name)
    assert bounded is not None
    assert bounded.holder == 0, "it waits for some time only"


def test_the_owner_of_an_rlock_is_named_without_a_with(things: Things) -> None:
    things.rlock.acquire()
    try:
        with waiting(things.enter_rlock) as thread:
            found = seen(thread, "threading.RLock")
    finally:
        things.rlock.release()
    thread.join(30)
    assert found is not None
    assert (found.holder, found.held_at) == (threading.get_native_id(), None)


def test_the_worker_that_runs_a_future_is_named(things: Things) -> None:
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(lambda: things.event.wait(60))
        with waiting(lambda: [future.result()]) as thread:
            found = seen(thread, "concurrent.futures.Future.result")
        worker = next(each for each in threading.enumerate() if "ThreadPool" in each.name)
        things.event.set()
    assert found is not None
    assert found.holder == worker.native_id


def test_the_thread_that_is_joined_is_named(things: Things) -> None:
    with waiting(lambda: things.event.wait(60)) as other:

        def join() -> None:
            other.join()

        with waiting(join) as thread:
            found = seen(thread, "threading.Thread.join")
            things.event.set()
    assert found is not None
    assert found.holder == other.native_id


def test_locals_of_others_do_not_stay_alive(things: Things) -> None:
    gone = threading.Event()

    class Large:
        pass

    alive: list[weakref.ref[Large]] = []

    def step() -> None:
        large = Large()
        alive.append(weakref.ref(large))
        with things.lock:
            pass
        del large
        gone.set()
        things.event.wait(60)

    with things.lock, waiting(step) as thread:
        assert seen(thread, "threading.Lock") is not None
    assert gone.wait(30)
    try:
        assert alive[0]() is None
    finally:
        things.event.set()


def test_no_code_of_the_program_is_run(things: Things) -> None:
    with things.lock, waiting(things.enter_counted) as thread:
        for _ in range(400):
            if things.reads:
                break
            time.sleep(0.02)
        found = waits(dict(sys._current_frames()), Files()).get(thread.ident or 0)
    thread.join(30)
    assert things.reads == 1
    assert found is None


def test_a_frame_that_is_traced_keeps_its_locals() -> None:
    gate, other, is_there = threading.Lock(), threading.Lock(), threading.Event()
    found = []

    def trace(_frame: FrameType, event: str, _argument: object) -> Any:
        if event == "line" and other.locked() and not is_there.is_set():
            is_there.set()
            with gate:
                pass
        return trace

    def work() -> None:
        value = 3
        with other:
            found.append(value)

    def run() -> None:
        sys.settrace(trace)
        try:
            work()
        finally:
            sys.settrace(None)

    with gate:
        thread = threading.Thread(target=run)
        thread.start()
        assert is_there.wait(30)
        waits(sys._current_frames(), Files())
    thread.join()
    assert found == [3]


def test_a_file_locked_twice_by_one_process_says_so(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("w") as ours, path.open("w") as theirs:
        fcntl.flock(ours, fcntl.LOCK_EX)
        with waiting(lambda: fcntl.flock(theirs, fcntl.LOCK_EX)) as thread:
            found = seen(thread, "fcntl.flock")
        fcntl.flock(ours, fcntl.LOCK_UN)
        thread.join(30)
    assert found is not None
    assert found[:3] == ("fcntl.flock", 0, OWN_PROCESS if HAS_KERNEL_LOCKS else "")


def test_a_database_that_is_locked_is_named(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with contextlib.closing(sqlite3.connect(path)) as ours:
        ours.execute("create table steps (step int)")
        ours.commit()
        ours.execute("insert into steps values (1)")

        def insert() -> None:
            with contextlib.closing(sqlite3.connect(path, timeout=60)) as theirs:
                theirs.execute("insert into steps values (2)")

        with waiting(insert) as thread:
            found = seen(thread, "sqlite3.Connection.execute")
        ours.commit()
        thread.join(30)
    assert found is not None
    assert found[:2] == ("sqlite3.Connection.execute", 0)
    assert found.name == (OWN_PROCESS if HAS_KERNEL_LOCKS else "")
