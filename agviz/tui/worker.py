"""A thread that serves one request after the other, and the answer that it posts."""

from __future__ import annotations

import contextlib
import queue
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from textual.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Replied(Message):
    """A question was answered; the screen hands the answer to whoever asked."""

    then: Callable[[Any], None]
    answer: Any


class Worker(threading.Thread):
    """Base of the threads behind the terminal UI.

    Args:
        name: of the thread.
        post: where messages go; called on this thread.
    """

    def __init__(self, name: str, post: Callable[[Message], object]) -> None:
        super().__init__(name=name, daemon=True)
        self._post = post
        self._requests: queue.Queue[Callable[[], None] | None] = queue.Queue()

    def stop(self) -> None:
        """End when everything asked for was done."""
        self._requests.put(None)

    def wait(self) -> bool:
        """Block until every request was served; True where there was nothing to wait for."""
        if self._requests.unfinished_tasks == 0 or not self.is_alive():
            return True
        self._requests.join()
        return False

    def run(self) -> None:
        """Serve requests until :meth:`stop`."""
        try:
            self._serve_all()
        finally:  # whoever waits for what is left would wait for ever
            with contextlib.suppress(queue.Empty):
                while True:
                    self._requests.get_nowait()
                    self._requests.task_done()

    def _serve_all(self) -> None:
        while True:
            try:
                request = self._requests.get(timeout=self.patience)
            except queue.Empty:
                self.idle()
                continue
            try:
                if request is None:
                    break
                self.serve(request)
            finally:
                self._requests.task_done()

    @property
    def patience(self) -> float | None:
        """Seconds without a request after which :meth:`idle` is called; None: never."""
        return None

    def idle(self) -> None:
        """Nothing was asked for a while."""

    def serve(self, request: Callable[[], None]) -> None:
        """Do what is asked for."""
        request()
