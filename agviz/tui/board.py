"""Board: the files, their graph tasks, and the view of the one that is shown.

The screen, its driver and everything else that a key may reach share it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agviz.tui import command_line
from agviz.tui.command_line import CommandError, number
from agviz.tui.model import Key
from agviz.tui.modes import ModeScreen
from agviz.tui.pairing import PairFound, first_pair, pair_with
from agviz.tui.panels.files import FileRow
from agviz.tui.repaint import Repaint
from agviz.tui.screens.run import RunScreen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from textual.screen import Screen

    from agviz.analysis.flow import FlowTarget
    from agviz.traces.graph_tasks import GraphTasks
    from agviz.tui.flow_reading import StepPlace
    from agviz.tui.model import LoadedPass, View
    from agviz.tui.pairing import PassPair
    from agviz.tui.reader_thread import Listed, ReaderThread, Start

_OPENING_S: Final = 0.3
"""Only of a file that takes longer to be opened is it said that it is read: a picture takes 25 ms
of CPU."""


class Board:
    """The view, and the thread that is asked for another one.

    Args:
        screen: shows the view.
        paths: the files that were opened.
        reader: the thread that reads them; it posts its answers to the screen.
        draw: called with each new view.
    """

    def __init__(
        self,
        screen: Screen[None],
        paths: Sequence[Path],
        reader: ReaderThread,
        draw: Callable[[View], None],
    ) -> None:
        self.screen = screen
        self.paths = [*paths]
        self.reader = reader
        self.view: View | None = None
        """None: nothing was read yet. Another one is shown by :meth:`show`."""
        self.named: Mapping[str, Path] = {}
        """Files that may be opened beside those, by what they are called."""
        self.alive: Callable[[View], View] = _as_it_is
        """Adds to a view what is known beside the recording; a driver may set another."""
        self.tasks: list[GraphTasks] = []
        """The graph tasks of each file."""
        self._pair: PassPair | None = None
        """The passes that were compared last."""
        self._wrong: list[int] = []
        """With how many passes of each file something is not as it should be."""
        self.together = Repaint(screen)
        self.opening = Repaint(screen, _OPENING_S)
        """Until there is something to be seen."""
        self._draw = draw
        self._is_stale = False
        """Whether the view changed while another screen covered this one."""

    @property
    def shown(self) -> View:
        """The view. Raises RuntimeError before there is one."""
        if self.view is None:
            raise RuntimeError("there is nothing to show yet")
        return self.view

    def show(self, view: View) -> None:
        """Show another view; where another screen covers this one, draw it once it is seen."""
        if view != self.view:
            self.view = view
            if self._is_covered:
                self._is_stale = True
            else:
                self._draw(view)

    def uncovered(self) -> None:
        """Draw what changed while another screen covered this one."""
        if self._is_stale and self.view is not None:
            self._is_stale = False
            self._draw(self.view)

    @property
    def _is_covered(self) -> bool:
        stack = self.screen.app.screen_stack
        above = stack[stack.index(self.screen) + 1 :] if self.screen in stack else []
        return any(not screen.is_modal for screen in above)

    def look_at(self, node: int | None, view: View) -> None:
        """Show ``view`` with another node selected, and what is known beside the recording."""
        view = self.alive(view)
        if node is None or node == view.selected:
            self.show(view)
        else:
            self.together.wait()
            self.show(replace(view, selected=node))
            self.reader.story(node)

    def look_at_named(self, name: str) -> None:
        """Look at a node, by its number in execution order or a part of its names."""
        self.look_at(command_line.node(name, self.shown.recording), self.shown)

    def notify(self, sentence: str) -> None:
        """Say something that may hold names from a trace."""
        self.screen.notify(sentence, markup=False)

    def take_list(self, message: Listed) -> None:
        """Take over which graph tasks there are."""
        self.tasks, self._wrong = message.tasks, message.wrong
        for screen in self.screen.app.screen_stack:
            if isinstance(screen, RunScreen):
                screen.show_files(self._files())

    def file_grown(self, file: int) -> None:
        """Have the screens over the one on a trace take over what has come to a file."""
        for screen in self.screen.app.screen_stack:
            if isinstance(screen, ModeScreen):
                screen.renew(file)

    def show_run(
        self, key: Key | None = None, when_listed: Callable[[], None] | None = None
    ) -> None:
        """Show all passes of the files, to choose one of them.

        Args:
            key: the pass that is about to be opened; None: the one that is shown, if there is one.
            when_listed: called once they are listed.
        """
        key = self.view.recording.key if key is None and self.view else key
        if key is not None:
            screen = RunScreen(key, self._opened, self.reader, self._files(), when_listed)
            self.screen.app.push_screen(screen, self._leave_run)

    def _opened(self) -> LoadedPass | None:
        return None if self.view is None else self.view.recording

    def _files(self) -> list[FileRow]:
        files = zip(self.paths, self.tasks, self._wrong, strict=False)
        return [FileRow(path.name, len(tasks.outermost), wrong) for path, tasks, wrong in files]

    def compare_files(self) -> None:
        """Hold the first two files against each other: the first passes that differ."""
        self.reader.ask_files(first_pair((0, 1)), lambda found: self._show(found, seeks=True))

    def compare(self) -> None:
        """Hold the pass against the one that it was compared with before, or that suits it best."""
        key, pair = self.shown.recording.key, self._pair
        if pair is not None and key in pair:
            self._show(PairFound(pair))
        else:
            self.reader.ask_files(pair_with(key), self._show)

    def compare_with(self, argument: str) -> None:
        """Hold the pass against one that is named: ``FILE`` or ``rank 2``, ``#PASS``, or both.

        Raises:
            CommandError: what was typed names none.
        """
        key = self.shown.recording.key
        name, _, digits = argument.rpartition("#") if "#" in argument else (argument, "", "")
        other = number(digits) if digits else None
        path = self.named.get(name.strip()) or Path(name.strip()).expanduser()
        if not name.strip():
            self.reader.ask_files(pair_with(key, other), self._show)
        elif not path.is_file():
            raise CommandError(f"There is no file {path}.")
        else:
            self.reader.add(path, lambda file: self._compare_added(path, file, other))

    def _compare_added(self, path: Path, file: int, other: int | None) -> None:
        if file == len(self.paths):
            self.paths.append(path)
        self.reader.ask_files(pair_with(self.shown.recording.key, other, file), self._show)

    def _show(self, found: PairFound, *, seeks: bool = False) -> None:
        from agviz.tui.screens.compare import CompareScreen

        if found.pair is None:
            self.notify(found.said)
            return
        pair, key, node = found.pair, self.shown.recording.key, None
        side = pair.index(key) if key in pair else 0
        if pair == self._pair and key in pair:
            node = self.shown.selected
        screen = CompareScreen(self.reader, self.paths, pair, node=node, side=side, seeks=seeks)

        def leave(start: Start | None) -> None:
            self._pair = screen.pair
            self._begin(start)

        self.screen.app.push_screen(screen, leave)

    def follow(self, target: FlowTarget) -> None:
        """Show the gradient on its way to a parameter or node."""
        from agviz.tui.screens.flow import FlowScreen

        screen = FlowScreen(self.shown.recording, self.reader, target)
        self.screen.app.push_screen(screen, self.open_place)

    def open_place(self, place: StepPlace | None) -> None:
        """Look at a node, in whichever pass it is."""
        if place is None:
            return
        if place.graph_task == self.shown.recording.key.graph_task:
            self.look_at(place.node, self.shown)
        elif place.seq is not None:
            self.reader.go(place.graph_task, place.seq)

    def show_process(self) -> None:
        """Show everything that was recorded on one axis, to choose a place in it."""
        from agviz.tui.screens.process import ProcessScreen

        screen = ProcessScreen(self.shown.recording, self.reader)
        self.screen.app.push_screen(screen, self._begin)

    def open_task(self, argument: str) -> None:
        """Open a graph task of the file that is shown, by its number."""
        file, wanted = self.shown.recording.key.file, number(argument)
        if not self.tasks[file].has(wanted):
            raise CommandError(f"There is no graph task {wanted} in this file.")
        self.reader.load(Key(file, wanted))

    def _leave_run(self, picked: Start | PairFound | None) -> None:
        if isinstance(picked, PairFound):
            self._pair = None
            self._show(picked)
        else:
            self._begin(picked)

    def _begin(self, start: Start | None) -> None:
        if start is not None:
            self.reader.begin(start)


def _as_it_is(view: View) -> View:
    return view
