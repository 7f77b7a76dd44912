"""One rank of many, in the session that every trace has; one comes back from it to all ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from textual.binding import Binding, BindingType
from textual.message import Message

from agviz.tui.model import Key
from agviz.tui.reader_thread import ReaderThread, Start
from agviz.tui.session import Session

if TYPE_CHECKING:
    from pathlib import Path

    from agviz.tui.reader_thread import Listed


class RankSession(Session):
    """Opens at a pass of the rank."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("backspace", "leave", "All ranks", id="rank.leave"),
    ]

    number = 0
    """The rank."""
    graph_task = 0
    """The pass at which it opens."""

    class RankLeft(Message):
        """The user wants to see all ranks again."""

    @classmethod
    def of(cls, path: Path, number: int, graph_task: int) -> Self:
        """The session of a rank, with a reader thread of its own that is yet to be started."""

        def post(message: Message) -> None:
            session.post_message(message)

        session = cls([path], ReaderThread([path], post))
        session.number, session.graph_task = number, graph_task
        return session

    def on_listed(self, message: Listed) -> None:
        """Open the pass that was looked at."""
        if message.is_anew and self.view is None:
            why = f"opened at this pass of rank {self.number}"
            message.start = Start(Key(0, self.graph_task), -1, why)
        super().on_listed(message)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """One can go back also where there is nothing to be shown."""
        return (action == "leave" and self.view is None) or super().check_action(action, parameters)

    def action_leave(self) -> None:
        """Show all ranks again."""
        self.app.post_message(self.RankLeft())
        self.dismiss()
