"""The terminal UI on the ranks of a distributed program: :func:`run_ranks` opens it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from agviz.tui.app import BaseApp, run_app
from agviz.tui.drivers import OpenedRank, RecordedDriver
from agviz.tui.ranks_reader import RanksReader
from agviz.tui.reader_thread import ReaderThread
from agviz.tui.screen import TraceScreen
from agviz.tui.screens.ranks import RanksScreen
from agviz.tui.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from textual.message import Message


class RanksApp(BaseApp):
    """The application on the ranks of a distributed program.

    Args:
        folder: holds a trace of each.
        settings: what the user has chosen; None: nothing.
        notes: sentences to be shown at the beginning.
    """

    def __init__(
        self, folder: Path, settings: Settings | None = None, *, notes: Sequence[str] = ()
    ) -> None:
        super().__init__(settings, notes=notes)
        self.ranks_reader = RanksReader(folder, self._receive)
        self.ranks = RanksScreen(folder, self.ranks_reader)
        self.opened: TraceScreen | None = None
        """The rank that is looked at."""

    def begin(self) -> None:
        """Show all ranks."""
        self.push_screen(self.ranks)
        self.ranks_reader.start()

    def on_unmount(self) -> None:
        """Let go of the files."""
        self.on_rank_left()
        self.ranks_reader.stop()
        self.ranks_reader.join()

    def on_ranks_screen_rank_picked(self, message: RanksScreen.RankPicked) -> None:
        """Look at one rank."""
        if self.opened is None:
            rank = OpenedRank(message.number, message.graph_task, message.paths)
            path = message.paths[message.number]

            def post(found: Message) -> None:
                opened.post_message(found)

            reader = ReaderThread([path], post)
            make_driver = partial(RecordedDriver, rank=rank)
            opened = TraceScreen([path], reader, make_driver, self._shares)
            self.opened = opened
            self.push_screen(opened)
            reader.start()

    def on_rank_left(self) -> None:
        """Look at all again."""
        if self.opened is not None:
            self.opened.reader.stop()
            self.opened = None

    def _receive(self, message: Message) -> None:
        self.ranks.post_message(message)


def run_ranks(folder: Path, *, notes: Sequence[str] = ()) -> int:
    """Open the terminal UI on the ranks of a folder; return the exit code."""
    return run_app(RanksApp(folder, Settings.read(), notes=notes))
