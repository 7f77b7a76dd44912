"""The terminal UI on recorded traces: :func:`run` opens it."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from functools import partial
from typing import TYPE_CHECKING

from textual.app import App, SystemCommand
from textual.events import InputEvent

from agviz.tui.collector import PauseCollector
from agviz.tui.drivers import RecordedDriver
from agviz.tui.hangup import leave_with_the_terminal
from agviz.tui.reader_thread import ReaderThread
from agviz.tui.screen import TraceScreen
from agviz.tui.screens.tour import Tour
from agviz.tui.settings import Settings
from agviz.tui.shares import Shares

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from textual.events import Event
    from textual.message import Message
    from textual.notifications import SeverityLevel
    from textual.screen import Screen

    from agviz.tui.arrangement import Arrangement
    from agviz.tui.board import Board


class BaseApp(App[None]):
    """What the applications share: the user's settings, messages, and how they end.

    Args:
        settings: what the user has chosen; None: nothing.
        notes: sentences to be shown at the beginning.
    """

    TITLE = "agviz"
    CSS_PATH = "agviz.tcss"

    # Textual's own annotation hides from type checkers that these are class variables.
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-normal"), (160, "-wide")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-low"), (30, "-tall")]  # noqa: RUF012

    def __init__(self, settings: Settings | None = None, *, notes: Sequence[str] = ()) -> None:
        super().__init__()
        self._settings = settings
        self._notes = notes
        self._shares = Shares(None if settings is None else settings.folder / "layout.json")
        self.collector: PauseCollector | None = None
        """None: garbage is collected as ever."""

    def begin(self) -> None:
        """Show the first screen, and begin to read."""
        raise NotImplementedError

    def on_mount(self) -> None:
        """Begin."""
        if self._settings is not None:
            self._settle(self._settings)
        self.begin()
        for note in self._notes:
            self.notify(note, severity="warning", timeout=10, markup=False)
        if not self.is_headless:
            self._leave_on_signals()
            leave_with_the_terminal(self.hung_up)

    async def on_event(self, event: Event) -> None:
        """Collect garbage once no key follows for a moment."""
        await super().on_event(event)
        if self.collector is not None and isinstance(event, InputEvent):
            self.collector.stir()

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = True,
    ) -> None:
        """Show a message for a while; those that only inform take the place of what was shown."""
        if severity == "information":
            self.clear_notifications()
        super().notify(message, title=title, severity=severity, timeout=timeout, markup=markup)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Everything a key does, for the palette."""
        yield from super().get_system_commands(screen)
        if not screen.is_modal:
            seen = set()
            for node, binding, enabled, tooltip in screen.active_bindings.values():
                if node is screen and enabled and binding.id and binding.id not in seen:
                    seen.add(binding.id)
                    yield SystemCommand(
                        tooltip or binding.description,
                        f"Key: {self.get_key_display(binding)}",
                        partial(self.simulate_key, binding.key),
                    )

    def on_tour_offered(self, message: Tour.Offered) -> None:
        """Show a tour that was not shown before, or is asked for."""
        settings = self._settings
        if message.is_asked_for or (settings is not None and settings.take_tour(message.name)):
            self.push_screen(Tour(message.name, message.show_panel))

    def _settle(self, settings: Settings) -> None:
        """Take over what the user has chosen, and remember the next choice."""
        if settings.theme in self.available_themes:
            self.theme = settings.theme
        elif settings.theme:
            self.notify(f"There is no theme {settings.theme} any more.", markup=False)
        self.set_keymap(settings.keys)
        if settings.keys:
            self._warn_of_unknown(settings.keys.keys())
        self.theme_changed_signal.subscribe(self, lambda theme: settings.keep_theme(theme.name))

    def _warn_of_unknown(self, keys: AbstractSet[str]) -> None:
        from agviz.tui.keys import binding_ids  # all screens, which are imported once they open

        unknown = sorted(keys - binding_ids())
        if unknown:
            self.notify(
                f"keys.toml names bindings that are not there: {', '.join(unknown)}.",
                severity="warning",
                markup=False,
            )

    def action_help_quit(self) -> None:
        """Say which key leaves; Textual knows only keys that are bound to its own action."""
        for key, active in self.active_bindings.items():
            if active.binding.id in {"quit", "ranks.quit"}:
                title = "Do you want to quit?"
                self.notify(f"Press [b]{key}[/b] to quit the app", title=title)
                break

    def hung_up(self) -> None:
        """The terminal was closed, and this process is about to end; called on another thread."""

    def _leave_on_signals(self) -> None:
        """Give the terminal back as it was also when the process is asked to end."""
        loop = asyncio.get_running_loop()
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            with contextlib.suppress(NotImplementedError):  # Windows
                if number is not None:
                    loop.add_signal_handler(number, partial(self.exit, return_code=128 + number))


class AgvizApp(BaseApp):
    """The application on trace files: it owns the reader thread and opens the screen.

    Args:
        paths: trace files.
        settings: what the user has chosen; None: nothing.
        make_driver: makes the driver of the screen.
        notes: sentences to be shown at the beginning.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        settings: Settings | None = None,
        *,
        make_driver: Callable[[Board, Arrangement], RecordedDriver] = RecordedDriver,
        notes: Sequence[str] = (),
    ) -> None:
        super().__init__(settings, notes=notes)
        self.reader = ReaderThread(paths, self._receive)
        self.shown = TraceScreen(paths, self.reader, make_driver, self._shares)

    def begin(self) -> None:
        """Open the screen."""
        self.push_screen(self.shown)
        self.reader.start()

    def on_unmount(self) -> None:
        """Let go of the files."""
        self.reader.stop()
        self.reader.join()

    def _receive(self, message: Message) -> None:
        self.shown.post_message(message)


def run(paths: Sequence[Path], *, lists: bool = False, notes: Sequence[str] = ()) -> int:
    """Open the terminal UI on trace files; return the exit code.

    Args:
        paths: the files.
        lists: whether two files, too, are listed first instead of held against each other.
        notes: sentences to be shown at the beginning.
    """
    compares = len(paths) == 2 and not lists
    make_driver = partial(RecordedDriver, begins_with_run=not compares, compares=compares)
    return run_app(AgvizApp(paths, Settings.read(), make_driver=make_driver, notes=notes))


def run_app(app: BaseApp) -> int:
    """Run an application to its end; return the exit code."""
    app.collector = PauseCollector()
    app.run()
    return app.return_code or 0
