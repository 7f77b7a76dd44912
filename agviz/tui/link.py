"""The thread through which the terminal UI speaks with a debugged program.

Each question may take as long as it likes; its answer comes back as a message.
"""

from __future__ import annotations

import queue
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from textual.message import Message

from agviz.debugger.client import Said
from agviz.errors import AgvizError

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.debugger.client import Client, Notice

T = TypeVar("T")


@dataclass
class NoticeReceived(Message):
    """The program said something by itself."""

    notice: Notice


@dataclass
class Replied(Message):
    """A question was answered."""

    then: Callable[[Any], None]
    answer: Any


@dataclass
class Refused(Message):
    """A question could not be answered; the sentence says why."""

    sentence: str


class NoticeThread(threading.Thread):
    """Passes on what the program says by itself, until it is gone.

    Args:
        client: whose notices are received.
        post: where messages go; called on this thread.
    """

    def __init__(self, client: Client, post: Callable[[Message], object]) -> None:
        super().__init__(name="agviz-ear", daemon=True)
        self._client = client
        self._post = post

    def run(self) -> None:
        """Listen."""
        while True:
            notice = self._client.next_notice(timeout=None)
            self._post(NoticeReceived(notice))
            if isinstance(notice, Said) and notice.what == "gone":
                return


class Link(threading.Thread):
    """Asks one question after the other.

    Args:
        client: whom to ask.
        post: where messages go; called on this thread.
    """

    def __init__(self, client: Client, post: Callable[[Message], object]) -> None:
        super().__init__(name="agviz-link", daemon=True)
        self._client = client
        self._post = post
        self._questions: queue.Queue[tuple[Callable[[Client], Any], Callable[[Any], None]] | None]
        self._questions = queue.Queue()

    def ask(self, question: Callable[[Client], T], then: Callable[[T], None]) -> None:
        """Ask, and have ``then`` called with the answer by whoever gets the message."""
        self._questions.put((question, then))

    def interrupt(self) -> None:
        """Have the Python that is being run at a stop end, without waiting for its answer."""

        def ask() -> None:
            try:
                self._client.interrupt()
            except AgvizError as error:
                self._post(Refused(str(error)))

        threading.Thread(target=ask, name="agviz-interrupt", daemon=True).start()

    def stop(self) -> None:
        """End when everything was asked."""
        self._questions.put(None)

    def wait(self) -> bool:
        """Block until everything was asked; True where there was nothing to wait for."""
        if self._questions.unfinished_tasks == 0:
            return True
        self._questions.join()
        return False

    def run(self) -> None:
        """Ask until :meth:`stop`."""
        while (asked := self._questions.get()) is not None:
            question, then = asked
            try:
                self._post(Replied(then, question(self._client)))
            except AgvizError as error:
                self._post(Refused(str(error)))
            self._questions.task_done()
