"""The screen on a trace: all panels on one graph task.

It holds one :class:`~agviz.tui.model.View` on its board; a key asks the reader thread for
something, the answer makes a new view, and every panel draws that. What a key means is its
driver's; which keys there are is said by the table of commands.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

from textual.binding import Binding
from textual.containers import Horizontal
from textual.reactive import Reactive
from textual.screen import Screen
from textual.widgets import Static

from agviz.analysis.module_tree import ModuleReading
from agviz.traces.inferred import LEGEND, UNSEEN, is_observed
from agviz.tui import commands
from agviz.tui.arrangement import Arrangement
from agviz.tui.board import Board
from agviz.tui.command_line import CommandError, parse
from agviz.tui.drivers import RecordedDriver
from agviz.tui.figures_reading import FiguresQuestion
from agviz.tui.hints import Hints
from agviz.tui.model import Playhead, View
from agviz.tui.modes import ModeBar
from agviz.tui.node_search import NodeSearch
from agviz.tui.panel_grid import PanelGrid
from agviz.tui.panels.events import Events
from agviz.tui.panels.graph import GraphPanel
from agviz.tui.panels.panel import Panel
from agviz.tui.prompt import COMMAND, SEARCH, SHELL, Prompt
from agviz.tui.screens.help import Help, keys_of
from agviz.tui.screens.tour import Tour
from agviz.tui.shares import Shares
from agviz.tui.size_classes import take_size_classes
from agviz.tui.source_reading import SourceQuestions
from agviz.tui.title import PanelTab, Status, Title

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from textual import events
    from textual.app import ComposeResult
    from textual.binding import BindingType
    from textual.widget import Widget

    from agviz.tui.live_driver import LiveDriver
    from agviz.tui.modes import Mode
    from agviz.tui.panels.inspector import Inspector
    from agviz.tui.panels.source import SourcePanel
    from agviz.tui.panels.threads import Threads
    from agviz.tui.python_field import PythonField
    from agviz.tui.reader_thread import (
        FileGrown,
        Filtered,
        Grown,
        Listed,
        Loaded,
        Located,
        PageRead,
        PlayheadMoved,
        ReaderCrashed,
        ReaderThread,
        ReadFailed,
        StoryRead,
    )
    from agviz.tui.relatives import NonfiniteFound
    from agviz.tui.screens.tour import TourName
    from agviz.tui.seeking import Sought
    from agviz.tui.worker import Replied


class TraceScreen(Screen[None]):
    """All panels, the playhead and the selection.

    Args:
        paths: the files that were opened.
        reader: the thread that reads them; it posts its answers to this screen.
        make_driver: makes the driver; a recording has a :class:`RecordedDriver`.
        shares: how the user shared out the room among the panels.
    """

    AUTO_FOCUS = ""
    BINDINGS: ClassVar[list[BindingType]] = [
        *commands.BINDINGS,
        # Textual's own, which the table's would hide where there is no program to be paused.
        Binding("ctrl+c", "screen.copy_text", show=False),
    ]

    focused: Reactive[Widget | None] = Reactive(None, repaint=False)
    """Other than in a screen of Textual's, only what loses or gets the focus is painted."""

    def __init__(
        self,
        paths: Sequence[Path],
        reader: ReaderThread,
        make_driver: Callable[[Board, Arrangement], RecordedDriver] = RecordedDriver,
        shares: Shares | None = None,
    ) -> None:
        super().__init__()
        self.reader = reader
        self.board = Board(self, paths, reader, self._draw)
        self.arrangement = Arrangement(self.board, shares or Shares())
        self.driver = make_driver(self.board, self.arrangement)
        self.node_search = NodeSearch(self.board)
        self.sources = SourceQuestions(self.board)
        self.modules = FiguresQuestion(self.board, "modules", ModuleReading)
        self._panels: list[Panel] = []
        self._prompt = Prompt(
            self.complete, takes_python="program" in self.driver.offers, id="prompt"
        )

    @property
    def view(self) -> View | None:
        """What is shown; None: nothing was read yet."""
        return self.board.view

    @property
    def live(self) -> LiveDriver:
        """The driver, where a program is behind this screen; or else RuntimeError is raised."""
        if "program" not in self.driver.offers:
            raise RuntimeError("there is no program behind a recording")
        return cast("LiveDriver", self.driver)

    def compose(self) -> ComposeResult:
        """Title, panels, status and footer."""
        take_size_classes(self)
        self._panels = [panel(id=panel.HEADING.lower()) for panel in self.arrangement.panels]
        with Horizontal(id="head"):
            yield Title(id="title")
            yield ModeBar("Pass")
        with Horizontal(id="tabs"):
            for number, panel in enumerate(self._panels, start=1):
                yield PanelTab(number, panel.HEADING.lower(), panel.HEADING)
        yield Static("Reading the trace …", id="notice", markup=False)
        with PanelGrid(id="panels"):
            yield from self._panels
        yield from self.driver.widgets()
        yield Status(id="status")
        yield self._prompt
        yield Hints(id="hints")

    def on_mount(self) -> None:
        """Begin with the graph, once there is one."""
        self.board.opening.wait()
        self.driver.begin()
        self.arrangement.choose("graph")

    def on_resize(self) -> None:
        """Share out the room."""
        self.arrangement.share_room()

    def _draw(self, view: View) -> None:
        for panel in self._panels:
            panel.show(view)
        self.query_one(Title).show(view)
        self.query_one(Status).show(view)
        self.driver.drawn(view)

    # Keys and commands.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Which commands there are, and which of them do something now."""
        if action not in {"command", "say_needs"}:
            return True
        command = commands.BY_ID[str(parameters[0])]
        if command.is_offered(self.driver.offers) != (action == "command"):
            return False
        when = command.keys.when if command.keys else "shown"
        if when == "always":
            return True
        if self._prompt.is_open:
            return self.driver.works_in_prompt(str(parameters[0]))
        return when == "free" or self.view is not None

    def action_command(self, name: str) -> None:
        """Do what a key is for."""
        command = commands.BY_ID[name]
        (command.press or command.run)(self, "")

    def action_say_needs(self, name: str) -> None:
        """Say why a key can't do here what it is for."""
        self.notify(commands.BY_ID[name].without, timeout=10)

    def carry_out(self, line: str) -> None:
        """Carry out what was typed behind ``:``.

        Raises:
            CommandError: it can't be done; the sentence says why.
        """
        verb, argument = parse(line, commands.usages(self.driver.offers))
        commands.verbs(self.driver.offers)[verb].carry_out(self, argument)

    def complete(self, line: str) -> list[str]:
        """The command lines that begin with what was typed."""
        verb, blank, argument = line.partition(" ")
        known = commands.verbs(self.driver.offers)
        if not blank:
            return [each for each in known if each.startswith(verb)]
        complete = known[verb].complete if verb in known else None
        if complete is None:
            return []
        return [f"{verb} {each}" for each in complete(self, argument)]

    def explain_keys(self) -> None:
        """Explain the focused panel and its keys."""
        panel = self.arrangement.focused or self.query_one(GraphPanel)
        text = panel.HELP
        if self.view is not None and is_observed(self.view.recording.meta):
            text += f"\n\n{LEGEND}. So is which nodes are ready and which wait; {UNSEEN}."
        here, everywhere = keys_of(self, panel)
        keys = [(f"Keys in {panel.HEADING}", here), ("Keys everywhere", everywhere)]
        usages = commands.usages(self.driver.offers)
        self.app.push_screen(Help(panel.HEADING, text, keys, usages))

    def on_prompt_answered(self, message: Prompt.Answered) -> None:
        """Search, run Python, or carry out a command."""
        if message.kind == SHELL:
            self.live.stopped_node.run_python(message.text)
        elif message.kind == SEARCH:
            self.node_search.search(message.text)
        else:
            try:
                self.carry_out(message.text)
            except CommandError as error:
                self.notify(str(error), severity="warning", markup=False)

    def on_prompt_left(self) -> None:
        """Go back to the panel from which the prompt was opened."""
        self.arrangement.leave_prompt()

    # What the reader thread, or a driver's own threads, found.

    def on_replied(self, message: Replied) -> None:
        """Hand an answer to whoever asked."""
        message.then(message.answer)

    def on_listed(self, message: Listed) -> None:
        """Open a graph task, or say that there is none."""
        self.driver.listed(message)

    def on_file_grown(self, message: FileGrown) -> None:
        """Have the screens over this one take over what has come."""
        self.board.file_grown(message.file)

    def on_loaded(self, message: Loaded) -> None:
        """Show a graph task."""
        self.board.opening.came()
        self.driver.loaded(message)
        before, recording = self.view, message.recording
        if before is None:
            self.add_class("-loaded")
            self.refresh_bindings()
        self.node_search.forget_matches()
        columns = recording.columns
        node = message.moment.node
        if node is None and len(columns):
            node = columns.node_at(0)
        view = View(
            recording=recording,
            moment=message.moment,
            follows=message.follows,
            why=message.why,
        )
        if message.match is not None:
            node = message.match.node
            view = replace(view, found=(node, message.match.text))
        if before is not None and before.recording.key.file == recording.key.file:
            text = before.text if before.recording.is_of(recording.meta) else None
            view = replace(view, thread=before.thread, busy=before.busy, text=text)
        is_on_caller = all(thread.queue < 0 for thread in recording.threads.values())
        if before is None and is_on_caller and not self.driver.goes_on and recording.is_over:
            self.arrangement.yield_queues()
        if (
            before is not None
            and before.recording.key == recording.key
            and before.recording.is_of(recording.meta)
        ):
            node = before.selected if message.match is None else node
        story = message.story
        if story is not None and story.node.index == node:
            view = replace(view, selected=node, story=story)
        self.board.look_at(node, view)
        self.arrangement.share_room()
        if before is None:
            self.call_after_refresh(self.arrangement.focus_chosen)
            self.call_after_refresh(self.offer_tour)

    def on_grown(self, message: Grown) -> None:
        """Show what was read on, or has happened since."""
        view = self.view
        if view is None or not message.recording.is_same(view.recording):
            return
        for piece in message.pieces:
            message.recording.columns.add(piece)
        recording = replace(message.recording, read=message.recording.columns.version)
        view = replace(view, recording=recording)
        self.board.show(view)
        if view.selected is None and len(recording.columns):
            self.board.look_at(recording.columns.node_at(0), view)

    def on_playhead_moved(self, message: PlayheadMoved) -> None:
        """Show another moment; the end is no end while a program goes on."""
        view = self.view
        if view is None or view.recording.key != message.key:
            return
        end = "beginning" if message.moment.position == 0 else "end"
        if message.said:
            self.notify(message.said)
        elif not message.moved and not self.driver.goes_on:
            self.notify(f"The playhead is at the {end}.")
        view = replace(view, moment=message.moment, why="")
        if message.moment.node is not None:
            view = replace(view, selected=message.moment.node, story=message.story)
        self.board.show(view)

    def on_nonfinite_found(self, message: NonfiniteFound) -> None:
        """Go there, and say where that is."""
        if message.place is not None:
            self.driver.go(message.place.graph_task, message.place.seq)
        if message.said:
            self.board.notify(message.said)

    def on_sought(self, message: Sought) -> None:
        """Say how the search in other graph tasks goes."""
        if self.view is not None:
            self.node_search.show_progress(message)

    def on_filtered(self, message: Filtered) -> None:
        """List only some events."""
        if self.view is not None and self.view.recording.key == message.key:
            self.query_one(Events).show_filtered(message.filter, message.seqs)
            if not message.seqs:
                self.board.notify(f"No event fits “{message.filter.text}”; :filter lists all.")

    def on_page_read(self, message: PageRead) -> None:
        """Show events."""
        if self.view is not None and self.view.recording.key == message.key:
            self.query_one(Events).add_page(message)

    def on_story_read(self, message: StoryRead) -> None:
        """Show what happened to a node, unless another one is looked at by now."""
        view = self.view
        if view is None or view.recording.key != message.key:
            self.board.together.release()
            return
        if view.selected in {None, message.story.node.index}:
            self.board.show(replace(view, story=message.story))
        self.board.together.came()

    def on_located(self, message: Located) -> None:
        """Put the cursor of the events where a node was taken up."""
        if self.view is not None and self.view.recording.key == message.key:
            self.query_one(Events).go_to(message.offset, message.seq)
        self.board.together.came()

    def on_read_failed(self, message: ReadFailed) -> None:
        """Say what is wrong with the file."""
        if self.view is None:
            while self.app.screen is not self:  # the run, of which nothing was read
                self.app.pop_screen()
            self.arrangement.say(f"✗ {message.sentence}\n\nPress q to leave.")
        else:
            self.notify(message.sentence, severity="error", timeout=20, markup=False)

    def on_reader_crashed(self, message: ReaderCrashed) -> None:
        """End with the error of the reader thread."""
        raise message.error

    # What the user does in a panel.

    def on_panel_node_selected(self, message: Panel.NodeSelected) -> None:
        """Look at another node."""
        if self.view is not None:
            self.board.look_at(message.node, self.view)

    def on_panel_elsewhere_picked(self, message: Panel.ElsewherePicked) -> None:
        """Go to another graph task."""
        self.driver.go(message.graph_task, message.seq)

    def on_threads_time_picked(self, message: Threads.TimePicked) -> None:
        """Move the playhead."""
        self.driver.move(partial(Playhead.to_seq, seq=message.seq))

    def on_events_page_wanted(self, message: Events.PageWanted) -> None:
        """Read events."""
        self.reader.page(message.page, message.filter)

    def on_source_panel_figures_wanted(self) -> None:
        """Read what happened by line."""
        self.sources.figures.want()

    def on_source_panel_text_wanted(self, message: SourcePanel.TextWanted) -> None:
        """Read a file of the program."""
        self.sources.want_text(message.file)

    def on_modules_panel_tree_wanted(self) -> None:
        """Read what happened by module."""
        self.modules.want()

    def on_modules_panel_node_wanted(self) -> None:
        """Show the selected node among the others."""
        self.arrangement.show_panel(GraphPanel.HEADING.lower())

    def on_inspector_command_begun(self, message: Inspector.CommandBegun) -> None:
        """Let a command be written to its end."""
        self.arrangement.ask(COMMAND, message.text)

    def on_python_field_completion_wanted(self, message: PythonField.CompletionWanted) -> None:
        """Complete a name of the program."""
        self.live.stopped_node.complete_python(message.text)

    def on_screen_resume(self) -> None:
        """Draw what changed behind another screen; offer a tour to whoever comes from the run."""
        self.board.uncovered()
        self.offer_tour()

    def offer_tour(self, *, is_asked_for: bool = False) -> None:
        """Have a tour shown, unless another screen is over this one or nothing is shown yet."""
        if self.view is not None and self.app.screen is self:
            name: TourName = "program" if "program" in self.driver.offers else "pass"
            show_panel = self.arrangement.show_panel
            self.post_message(Tour.Offered(name, show_panel, is_asked_for=is_asked_for))

    def on_mode_bar_mode_chosen(self, message: ModeBar.ModeChosen) -> None:
        """Go on to another mode."""
        self.show_mode(message.mode)

    def show_mode(self, mode: Mode) -> None:
        """Show the run, the pass or the source."""
        if self.view is None:
            return
        match mode:
            case "Run":
                self.board.show_run()
            case "Timeline":
                self.board.show_process()
            case "Compare":
                self.board.compare()
            case "Source":
                self.arrangement.show_source()
            case "Pass":
                self.arrangement.show_pass()

    def on_panel_grid_border_moved(self, message: PanelGrid.BorderMoved) -> None:
        """Share out the room anew."""
        self.arrangement.put_border(message.axis, message.place, message.to)

    def on_panel_grid_border_left(self) -> None:
        """Remember how."""
        self.arrangement.keep_borders()

    def on_panel_tab_chosen(self, message: PanelTab.Chosen) -> None:
        """Show a panel."""
        self.arrangement.show_panel(message.panel)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """The focused panel is the one that a small screen shows."""
        if isinstance(event.widget, Panel) and event.widget.id:
            self.arrangement.choose(event.widget.id)
