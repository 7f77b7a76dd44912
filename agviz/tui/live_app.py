"""The terminal UI on a program that is being debugged."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

from agviz.tui.app import AgvizApp
from agviz.tui.live_driver import LiveDriver
from agviz.tui.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path, PurePath

    from agviz.debugger.client import Client
    from agviz.debugger.launch import Debuggee


class LiveApp(AgvizApp):
    """The application on a program that is being debugged.

    Args:
        client: speaks with the program.
        debuggee: the program, where it was started from here.
        folder: of the project, whose breakpoints are kept.
    """

    CSS_PATH: ClassVar[list[str | PurePath]] = ["agviz.tcss", "live.tcss"]  # type: ignore[assignment]

    def __init__(self, client: Client, debuggee: Debuggee | None, folder: Path) -> None:
        self._debuggee = debuggee
        make_driver = partial(LiveDriver, client=client, debuggee=debuggee, folder=folder)
        super().__init__([client.hello.trace], Settings.read(), make_driver=make_driver)

    def hung_up(self) -> None:
        """End the program, which was to be seen in that terminal."""
        if self._debuggee is not None:
            self._debuggee.end()
