"""The terminal UI on recorded traces: :func:`run` opens it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from functools import partial
from typing import TYPE_CHECKING

from textual.app import App, SystemCommand

from agviz.tui.reader_thread import ReaderThread
from agviz.tui.session import Session

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from textual.message import Message
    from textual.screen import Screen


class AgvizApp(App[None]):
    """The application: it owns the reader thread and opens the session.

    Args:
        paths: trace files.
    """

    TITLE = "agviz"
    CSS_PATH = "agviz.tcss"

    # Textual's own annotation hides from type checkers that these are class variables.
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-normal"), (160, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-low"), (30, "-tall")]  # noqa: RUF012

    def __init__(self, paths: Sequence[Path]) -> None:
        super().__init__()
        self.reader = ReaderThread(paths, self._receive)
        self.session = Session(paths, self.reader)

    def on_mount(self) -> None:
        """Begin to read."""
        self.push_screen(self.session)
        self.reader.start()
        if not self.is_headless:
            self._leave_on_signals()

    def on_unmount(self) -> None:
        """Let go of the files."""
        self.reader.stop()
        self.reader.join()

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Everything a key does, for the palette."""
        yield from super().get_system_commands(screen)
        if screen is self.session:
            seen = set()
            for node, binding, enabled, tooltip in screen.active_bindings.values():
                if node is screen and enabled and binding.id and binding.id not in seen:
                    seen.add(binding.id)
                    yield SystemCommand(
                        tooltip or binding.description,
                        f"Key: {self.get_key_display(binding)}",
                        partial(self.simulate_key, binding.key),
                    )

    def _leave_on_signals(self) -> None:
        """Give the terminal back as it was also when the process is told to end."""
        loop = asyncio.get_running_loop()
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            with contextlib.suppress(NotImplementedError):  # Windows
                if number is not None:
                    loop.add_signal_handler(number, partial(self.exit, return_code=128 + number))

    def _receive(self, message: Message) -> None:
        self.session.post_message(message)


def run(paths: Sequence[Path]) -> int:
    """Open the terminal UI on trace files; return the exit code."""
    app = AgvizApp(paths)
    app.run()
    return app.return_code or 0
