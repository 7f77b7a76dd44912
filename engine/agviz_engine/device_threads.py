"""Threads of the engine: one per device, and a pool for deep reentrant calls.

Torch has one thread for each accelerator device (``Engine::start_device_threads``) and lets the
calling thread do what belongs to the CPU.
"""

from __future__ import annotations

import os
import queue
import threading
from typing import TYPE_CHECKING

import torch

from agviz_engine.ready_queue import ReadyQueue

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz_engine.graph_task import GraphTask

_BAD_FORK = (
    "Unable to handle autograd's threading in combination with fork-based multiprocessing. "
    "See https://github.com/pytorch/pytorch/wiki/Autograd-and-Fork"
)
_SHUTDOWN_WAIT_LIMIT = "TORCH_AUTOGRAD_SHUTDOWN_WAIT_LIMIT"


def set_device(index: int) -> None:
    """Make accelerator ``index`` current on this thread (``set_device`` in ``engine.cpp``).

    Does nothing for a simulated device, which has no accelerator behind it.
    """
    if torch.accelerator.is_available() and 0 <= index < torch.accelerator.device_count():
        torch.accelerator.set_device_index(index)


def shutdown_wait_limit() -> float:
    """Seconds to wait for device threads at the end (``Engine::stop``)."""
    return float(os.environ.get(_SHUTDOWN_WAIT_LIMIT, "10.0"))


class DeviceThreads:
    """The device threads and their queues, started when first needed."""

    def __init__(self, main: Callable[[ReadyQueue[GraphTask], str], None]) -> None:
        self._main = main
        self._lock = threading.RLock()
        self._queues: dict[int, ReadyQueue[GraphTask]] = {}
        self._threads: dict[int, threading.Thread] = {}
        self._in_bad_fork = False

    @property
    def started(self) -> bool:
        """Whether there is any device thread."""
        return bool(self._queues)

    def queue(self, index: int) -> ReadyQueue[GraphTask]:
        """The ReadyQueue of device ``index`` (0 and up), its thread started.

        Raises:
            RuntimeError: this is a forked child of a process that had device threads
                (``Engine::initialize_device_threads_pool``).
        """
        if self._in_bad_fork:
            raise RuntimeError(_BAD_FORK)
        found = self._queues.get(index)
        if found is not None:
            return found
        with self._lock:
            if index not in self._queues:
                ready_queue: ReadyQueue[GraphTask] = ReadyQueue(index)
                name = f"pt_autograd_{index}"
                thread = threading.Thread(
                    target=self._main, args=(ready_queue, name), name=name, daemon=True
                )
                self._threads[index] = thread
                self._queues[index] = ready_queue
                thread.start()
            return self._queues[index]

    def stop(self, stopped: Callable[[int], None]) -> None:
        """End the device threads (``Engine::stop``); ``stopped`` gets each queue's index.

        Threads that do not end within :func:`shutdown_wait_limit` are left behind, as torch does,
        and so are all where a backward pass is under way. A task that only woke its thread for one
        that is over is none.
        """
        with self._lock:
            queues, threads = self._queues, self._threads
            self._queues, self._threads = {}, {}
        limit = shutdown_wait_limit()
        if limit <= 0 or any(map(_has_work, queues.values())):
            return
        for index, ready_queue in queues.items():
            ready_queue.push_shutdown_task()
            stopped(index)
        for thread in threads.values():
            thread.join(limit)

    def forget(self) -> None:
        """Drop all threads without a word to them: they do not exist in a forked child."""
        self._in_bad_fork = self._in_bad_fork or self.started
        self._lock = threading.RLock()
        self._queues, self._threads = {}, {}


def _has_work(ready_queue: ReadyQueue[GraphTask]) -> bool:
    return any(
        task.base is not None and not task.base.future_completed for task in ready_queue.snapshot()
    )


class ReentrantPool:
    """Threads for reentrant calls that are too deep for their own (``reentrant_thread_init``).

    A call blocks its thread until the pool's thread is through. A thread that is free again waits
    for the next call; one more is started when none is free.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._free = 0
        self._tasks: queue.SimpleQueue[tuple[Callable[[], None], _Outcome] | None]
        self._tasks = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def run(self, work: Callable[[], None]) -> None:
        """Run ``work`` on a thread of the pool and wait for it (``add_thread_pool_task``)."""
        outcome = _Outcome()
        with self._lock:
            if self._free > 0:
                self._free -= 1
            else:
                thread = threading.Thread(
                    target=self._main, name=f"pt_autograd_pool_{len(self._threads)}", daemon=True
                )
                self._threads.append(thread)
                thread.start()
            self._tasks.put((work, outcome))
        outcome.done.wait()
        if outcome.error is not None:
            raise outcome.error

    def _main(self) -> None:
        while True:
            item = self._tasks.get()
            if item is None:
                return
            work, outcome = item
            try:
                work()
            except BaseException as error:  # noqa: BLE001 - it is raised again in run
                outcome.error = error
            with self._lock:
                self._free += 1
            outcome.done.set()
            del item, work, outcome

    def stop(self) -> None:
        """End the pool's threads."""
        with self._lock:
            threads, self._threads = self._threads, []
            self._free = 0
            for _ in threads:
                self._tasks.put(None)
        for thread in threads:
            thread.join(shutdown_wait_limit())

    def forget(self) -> None:
        """Drop all threads without a word to them: they do not exist in a forked child."""
        self._lock = threading.RLock()
        self._tasks = queue.SimpleQueue()
        self._threads = []
        self._free = 0


class _Outcome:
    __slots__ = ("done", "error")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.error: BaseException | None = None
