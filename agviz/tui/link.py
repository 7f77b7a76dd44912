"""The threads through which the terminal UI speaks with a debugged program.

Each question may take as long as it likes; its answer comes back as a message.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, TypeVar

from agviz.debugger.messages import Said
from agviz.errors import AgvizError
from agviz.tui.worker import Replied, Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from textual.message import Message

    from agviz.debugger.client import Client
    from agviz.debugger.messages import Notice

T = TypeVar("T")


class NoticeThread(threading.Thread):
    """Passes on what the program says by itself, until it is gone.

    Args:
        client: whose notices are received.
        post: where messages go; called on this thread.
        then: called with each notice by whoever gets the message.
    """

    def __init__(
        self,
        client: Client,
        post: Callable[[Message], object],
        then: Callable[[Notice], None],
    ) -> None:
        super().__init__(name="agviz-notices", daemon=True)
        self._client = client
        self._post = post
        self._then = then

    def run(self) -> None:
        """Receive notices."""
        while True:
            notice = self._client.next_notice(timeout=None)
            self._post(Replied(self._then, notice))
            if isinstance(notice, Said) and notice.what == "gone":
                return


class Link(Worker):
    """Asks one question after the other.

    Args:
        client: whom to ask.
        post: where messages go; called on this thread.
        refused: called with a sentence where a question could not be answered.
    """

    def __init__(
        self, client: Client, post: Callable[[Message], object], refused: Callable[[str], None]
    ) -> None:
        super().__init__("agviz-link", post)
        self._client = client
        self._refused = refused

    def ask(self, question: Callable[[Client], T], then: Callable[[T], None]) -> None:
        """Ask, and have ``then`` called with the answer by whoever gets the message."""

        def request() -> None:
            self._post(Replied(then, question(self._client)))

        self._requests.put(request)

    def interrupt(self) -> None:
        """Have the Python that is being run at a stop end, without waiting for its answer."""
        interrupt = threading.Thread(
            target=self.serve, args=(self._client.interrupt,), name="agviz-interrupt", daemon=True
        )
        interrupt.start()

    def serve(self, request: Callable[[], None]) -> None:
        """Ask; where the program refuses, say so."""
        try:
            request()
        except AgvizError as error:
            self._post(Replied(self._refused, str(error)))
