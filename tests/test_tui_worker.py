"""The thread behind the terminal UI: who waits for it is let go, however it ends."""

from __future__ import annotations

import contextlib
import threading

from agviz.tui.worker import Worker


def wait_for(worker: Worker) -> list[bool]:
    """What another thread that waits for the worker is told; empty: it is kept for ever."""
    told: list[bool] = []
    waiting = threading.Thread(target=lambda: told.append(worker.wait()), daemon=True)
    waiting.start()
    waiting.join(20)
    return told


class Holding(Worker):
    """Serves the first request until it is let go."""

    def __init__(self) -> None:
        super().__init__("holding", lambda _: None)
        self.go_on = threading.Event()
        self.fails = False
        self._requests.put(self._hold)

    def run(self) -> None:
        """Serve requests, and end where one fails."""
        with contextlib.suppress(ValueError):
            super().run()

    def _hold(self) -> None:
        self.go_on.wait(20)
        if self.fails:
            raise ValueError("as a damaged file may")

    def ask(self) -> None:
        """Have something to do that comes after."""
        self._requests.put(lambda: None)


def test_one_waits_until_all_is_served_and_not_for_one_that_has_ended() -> None:
    worker = Holding()
    worker.start()
    worker.ask()
    worker.stop()
    worker.go_on.set()
    assert len(wait_for(worker)) == 1
    worker.join(20)
    worker.ask()
    assert wait_for(worker) == [True]


def test_one_does_not_wait_for_what_a_failed_worker_leaves() -> None:
    worker = Holding()
    worker.fails = True
    worker.ask()
    worker.start()
    threading.Timer(0.2, worker.go_on.set).start()
    assert len(wait_for(worker)) == 1
