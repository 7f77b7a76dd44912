"""The terminal UI on a program that is being debugged."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from agviz.tui.app import AgvizApp
from agviz.tui.live import LiveSession
from agviz.tui.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path, PurePath

    from agviz.debugger.client import Client
    from agviz.debugger.launch import Debuggee
    from agviz.tui.reader_thread import ReaderThread
    from agviz.tui.session import Session


class LiveApp(AgvizApp):
    """The application on a program that is being debugged.

    Args:
        client: speaks with the program.
        debuggee: the program, where it was started from here.
        folder: of the project, whose breakpoints are kept.
    """

    CSS_PATH: ClassVar[list[str | PurePath]] = ["agviz.tcss", "live.tcss"]  # type: ignore[assignment]

    def __init__(self, client: Client, debuggee: Debuggee | None, folder: Path) -> None:
        self._client = client
        self._debuggee = debuggee
        self._folder = folder
        super().__init__([client.hello.trace], Settings.read())

    def make_session(self, paths: Sequence[Path], reader: ReaderThread) -> Session:
        """A session with the program behind it."""
        return LiveSession(
            paths, reader, client=self._client, debuggee=self._debuggee, folder=self._folder
        )

    def hung_up(self) -> None:
        """End the program, which was to be seen in that terminal."""
        if self._debuggee is not None:
            self._debuggee.end()
