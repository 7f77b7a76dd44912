"""The session: one screen with all panels on one graph task, and what every key does.

The screen holds one :class:`~agviz.tui.model.View`; a key asks the reader thread for something,
its answer makes a new view, and every panel draws that.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.reactive import reactive
from textual.screen import Screen
from textual.widgets import Footer, Static

from agviz.tui import commands
from agviz.tui.model import Key, Playhead, Recording, View, find
from agviz.tui.panels.events import Events
from agviz.tui.panels.inspector import Inspector
from agviz.tui.panels.nodes import Nodes
from agviz.tui.panels.panel import Panel, Panels
from agviz.tui.panels.queues import Queues
from agviz.tui.panels.threads import Threads
from agviz.tui.prompt import SEARCH, Prompt
from agviz.tui.screens.help import Help
from agviz.tui.screens.tasks import TaskPicker
from agviz.tui.text import count
from agviz.tui.title import PanelTab, Status, Title

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from textual import events
    from textual.app import ComposeResult

    from agviz.traces.rows import GraphTaskRow
    from agviz.tui.reader_thread import (
        Arrived,
        Listed,
        Loaded,
        Located,
        Move,
        PageRead,
        ReaderCrashed,
        ReaderThread,
        ReadFailed,
        StoryRead,
    )

_PANELS: tuple[type[Panel], ...] = (Threads, Nodes, Events, Inspector, Queues)
_NEEDS_VIEW = {
    *("node", "event", "stop", "until", "nonfinite", "thread", "merge", "ask", "match"),
    *("choose_task", "copy", "panel", "show_panel", "help"),
}
_NODE, _EVENT, _STOP = (Binding.Group(name, compact=True) for name in ("Node", "Event", "Continue"))
_LEAST_THREADS, _MOST_THREADS = 5, 12


class Session(Screen[None]):
    """All panels, the playhead and the selection.

    Args:
        paths: the files that were opened.
        reader: the thread that reads them; it posts its answers to this screen.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "node(1)", "Next node", group=_NODE, id="go.next-node"),
        Binding("N", "node(-1)", "Previous node", group=_NODE, id="go.previous-node"),
        Binding("s", "event(1)", "Next event", group=_EVENT, id="go.next-event"),
        Binding("S", "event(-1)", "Previous event", group=_EVENT, id="go.previous-event"),
        Binding(
            "c", "stop(1)", "Next failure or non-finite, or the end", group=_STOP, id="go.stop"
        ),
        Binding(
            "C",
            "stop(-1)",
            "Previous failure or non-finite, or the beginning",
            group=_STOP,
            id="go.previous-stop",
        ),
        Binding("u", "until", "Until", tooltip="Run to the cursor", id="go.until"),
        Binding("x", "nonfinite", "NaN", tooltip="First non-finite", id="go.nonfinite"),
        Binding(
            "less_than_sign", "thread(-1)", "Previous thread", show=False, id="thread.previous"
        ),
        Binding("greater_than_sign", "thread(1)", "Next thread", show=False, id="thread.next"),
        Binding("m", "merge", "All threads", show=False, id="thread.merge"),
        # With priority, what is typed right behind it goes to the prompt, however fast.
        Binding("slash", "ask('/')", "Search", priority=True, id="search.ask"),
        Binding("full_stop", "match(1)", "Next match", show=False, id="search.next"),
        Binding("comma", "match(-1)", "Previous match", show=False, id="search.previous"),
        Binding("colon", "ask(':')", "Command line", show=False, priority=True, id="command.ask"),
        Binding("t", "choose_task", "Choose a graph task", show=False, id="task.choose"),
        Binding("y", "copy", "Copy", show=False, id="copy"),
        Binding("tab", "panel(1)", "Next panel", show=False, id="panel.next"),
        Binding("shift+tab", "panel(-1)", "Previous panel", show=False, id="panel.previous"),
        *(
            Binding(
                str(number + 1),
                f"show_panel('{panel.HEADING.lower()}')",
                f"{panel.HEADING} panel",
                show=False,
                id=f"panel.{panel.HEADING.lower()}",
            )
            for number, panel in enumerate(_PANELS)
        ),
        Binding("question_mark,f1", "help", "Help", id="help"),
        Binding("q", "app.quit", "Quit", id="quit"),
    ]

    AUTO_FOCUS = ""

    view: reactive[View | None] = reactive(None)

    def __init__(self, paths: Sequence[Path], reader: ReaderThread) -> None:
        super().__init__()
        self._paths = paths
        self._reader = reader
        self._tasks: list[list[GraphTaskRow]] = []
        self._matches: list[int] = []
        self._wanted = ""
        self._prompted_from: Panel | None = None

    def compose(self) -> ComposeResult:
        """Title, panels, status and footer."""
        yield Title(id="title")
        with Horizontal(id="tabs"):
            for number, panel in enumerate(_PANELS, start=1):
                yield PanelTab(number, panel.HEADING.lower(), panel.HEADING)
        yield Static("Reading the trace …", id="notice", markup=False)
        with Panels(id="panels"):
            for panel in _PANELS:
                yield panel(id=panel.HEADING.lower())
        yield Status(id="status")
        yield Prompt(id="prompt")
        yield Footer(compact=True)

    def on_mount(self) -> None:
        """Begin with the list of nodes, once there is one."""
        self._choose("nodes")

    def watch_view(self, view: View | None) -> None:
        """Draw everything anew."""
        if view is None:
            return
        for panel in self.query(Panel):
            panel.show(view)
        self.query_one(Title).show(view)
        self.query_one(Status).show(view)

    # What the reader thread found.

    def on_listed(self, message: Listed) -> None:
        """Open the first graph task, or say that there is none."""
        self._tasks = message.tasks
        for file, rows in enumerate(message.tasks):
            if rows:
                self._reader.load(Key(file, rows[0].id))
                return
        self._say(
            "This trace holds no backward pass.\n\n"
            "The program ended before it called backward or grad. Press q to leave."
        )

    def on_loaded(self, message: Loaded) -> None:
        """Show a graph task."""
        first = self.view is None
        self.add_class("-loaded")
        self.refresh_bindings()
        self._matches = []
        first_node = next(iter(message.recording.execution_order), None)
        self._look_at(first_node, View(recording=message.recording, moment=message.moment))
        self._arrange()
        if first:
            self.call_after_refresh(self._focus_chosen)

    def on_arrived(self, message: Arrived) -> None:
        """Show another moment."""
        view = self.view
        if view is None or view.recording.key != message.key:
            return
        if not message.moved:
            end = "beginning" if message.moment.position == 0 else "end"
            self.notify(f"The playhead is at the {end}.")
        node = message.moment.node
        if node is None:
            self.view = replace(view, moment=message.moment)
        else:
            self.view = replace(view, moment=message.moment, selected=node, story=message.story)

    def on_page_read(self, message: PageRead) -> None:
        """Show events."""
        if self.view is not None and self.view.recording.key == message.key:
            self.query_one(Events).add_page(message.page, message.events)

    def on_story_read(self, message: StoryRead) -> None:
        """Show what happened to a node."""
        if self.view is not None and self.view.recording.key == message.key:
            self.view = replace(self.view, story=message.story)

    def on_located(self, message: Located) -> None:
        """Put the cursor of the events where a node was taken up."""
        if self.view is not None and self.view.recording.key == message.key:
            self.query_one(Events).put_cursor(message.offset)

    def on_read_failed(self, message: ReadFailed) -> None:
        """Say what is wrong with the file."""
        if self.view is None:
            self._say(f"✗ {message.sentence}\n\nPress q to leave.")
        else:
            self.notify(message.sentence, severity="error", timeout=20, markup=False)

    def on_reader_crashed(self, message: ReaderCrashed) -> None:
        """End with the error of the reader thread."""
        raise message.error

    # What the user does in a panel.

    def on_panel_node_selected(self, message: Panel.NodeSelected) -> None:
        """Look at another node."""
        if self.view is not None:
            self._look_at(message.node, self.view)

    def on_events_page_wanted(self, message: Events.PageWanted) -> None:
        """Read events."""
        self._reader.page(message.page)

    def on_threads_time_picked(self, message: Threads.TimePicked) -> None:
        """Move the playhead."""
        self._move(partial(Playhead.to_seq, seq=message.seq))

    def on_panel_tab_chosen(self, message: PanelTab.Chosen) -> None:
        """Show a panel."""
        self.action_show_panel(message.panel)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """The focused panel is the one that a small screen shows."""
        if isinstance(event.widget, Panel) and event.widget.id:
            self._choose(event.widget.id)

    def on_resize(self) -> None:
        """Share out the room."""
        self._arrange()

    # Keys.

    def check_action(
        self,
        action: str,
        parameters: tuple[object, ...],  # noqa: ARG002 - Textual passes it
    ) -> bool | None:
        """While the prompt is open, and before there is a trace, most keys do nothing."""
        if self.query_one(Prompt).has_class("-open"):
            return False
        return self.view is not None or action not in _NEEDS_VIEW

    def action_node(self, by: int) -> None:
        """Go to the next or previous node."""
        thread = self.view.thread if self.view else None
        self._move(partial(Playhead.by_nodes, count=by, thread=thread))

    def action_event(self, by: int) -> None:
        """Go to the next or previous event."""
        self._move(partial(Playhead.by_events, count=by))

    def action_stop(self, by: int) -> None:
        """Go to the next or previous failure or non-finite gradient."""
        self._move(partial(Playhead.by_stops, count=by))

    def action_until(self) -> None:
        """Run to the cursor: to the event under it, or to the selected node's start."""
        view = self.view
        if view is None:
            return
        if isinstance(self.focused, Events):
            self._move(partial(Playhead.to_position, position=self.focused.cursor + 1))
        elif view.selected is None:
            self.notify("Choose a node first: put the cursor on it.")
        else:
            self._run_to(view.selected, view.recording)

    def action_nonfinite(self) -> None:
        """Go to the first non-finite gradient."""
        if self.view is None:
            return
        first = self.view.recording.first_nonfinite
        if first is not None:
            self._move(partial(Playhead.to_seq, seq=first.seq))
        elif any(node.nonfinite is not None for node in self.view.recording.nodes):
            self.notify("Every gradient that was checked is finite.")
        else:
            self.notify("Nothing was checked for non-finite values in this recording.")

    def action_thread(self, by: int) -> None:
        """Go by the next or previous thread's nodes only."""
        if self.view is None:
            return
        threads = self.view.recording.thread_ids
        if self.view.thread is None:
            chosen = threads[0 if by > 0 else -1]
        else:
            chosen = threads[(threads.index(self.view.thread) + by) % len(threads)]
        self._only(chosen)

    def action_merge(self) -> None:
        """Go by the nodes of all threads."""
        if self.view is not None and self.view.thread is None:
            self.notify("All threads are shown already; < and > choose one.")
        self._only(None)

    def action_ask(self, kind: str) -> None:
        """Open the prompt for a search or a command."""
        if self.view is not None:
            self._prompted_from = self.focused if isinstance(self.focused, Panel) else None
            self.query_one(Status).add_class("-hidden")
            self.query_one(Prompt).ask(kind)

    def action_match(self, by: int) -> None:
        """Look at the next or previous node that was searched for."""
        view = self.view
        if view is None:
            return
        if not self._wanted:
            self.notify("Search first: press / and type a part of a name.")
            return
        if not self._matches:
            self._matches = find(view.recording, self._wanted)
        if not self._matches:
            self.notify(f"No node matches “{self._wanted}”.", markup=False)
            return
        if view.selected in self._matches:
            index = (self._matches.index(view.selected) + by) % len(self._matches)
        else:
            index = 0 if by > 0 else -1
        node = self._matches[index]
        self._look_at(node, view)
        execution = view.recording.execution_of.get(node)
        if execution is not None:
            self._reader.locate(execution.seq)
        position = self._matches.index(node) + 1
        self.notify(f"{position} of {count(len(self._matches), 'match', 'matches')}", timeout=2)

    def action_choose_task(self) -> None:
        """Open the choice of graph tasks."""
        if any(self._tasks):
            current = self.view.recording.key if self.view else None
            picker = TaskPicker(self._paths, self._tasks, current)
            self.app.push_screen(picker, self._open_task)

    def action_copy(self) -> None:
        """Copy what the focused panel has selected."""
        text = self.focused.copy_text() if isinstance(self.focused, Panel) else ""
        if text:
            self.app.copy_to_clipboard(text)
            self.notify(f"Copied: {text}", timeout=3, markup=False)
        else:
            self.notify("There is nothing to copy here.")

    def action_panel(self, by: int) -> None:
        """Show and focus the next or previous panel."""
        names = [panel.HEADING.lower() for panel in _PANELS]
        current = self.focused.id if isinstance(self.focused, Panel) else None
        index = names.index(current) if current in names else -by
        self.action_show_panel(names[(index + by) % len(names)])

    def action_show_panel(self, panel: str) -> None:
        """Show and focus a panel."""
        if self.view is not None:
            self._choose(panel)
            self._focus_chosen()

    def action_help(self) -> None:
        """Explain the focused panel and its keys."""
        panel = self.focused if isinstance(self.focused, Panel) else self.query_one(Nodes)
        here: list[tuple[str, str]] = []
        everywhere: list[tuple[str, str]] = []
        keys: dict[tuple[object, str], list[str]] = {}
        for _, binding, _, _ in self.active_bindings.values():
            keys.setdefault((binding.id, binding.action), []).append(
                self.app.get_key_display(binding)
            )
        seen = set()
        for node, binding, enabled, tooltip in self.active_bindings.values():
            mark = (binding.id, binding.action)
            if mark in seen or not enabled or binding.id is None or not binding.description:
                continue
            seen.add(mark)
            row = (" ".join(keys[mark]), tooltip or binding.description)
            (here if node is panel else everywhere).append(row)
        self.app.push_screen(
            Help(
                panel.HEADING,
                panel.HELP,
                [(f"Keys in {panel.HEADING}", here), ("Keys everywhere", everywhere)],
            )
        )

    # The prompt.

    def on_prompt_left(self) -> None:
        """Go back to the panel from which the prompt was opened."""
        self.query_one(Status).remove_class("-hidden")
        if self._prompted_from is not None:
            self.set_focus(self._prompted_from)

    def on_prompt_answered(self, message: Prompt.Answered) -> None:
        """Search, or carry out a command."""
        if message.kind == SEARCH:
            self._wanted, self._matches = message.text, []
            self.action_match(1)
            return
        if self.view is None:
            return
        try:
            self._carry_out(self.view, *commands.parse(message.text))
        except commands.CommandError as error:
            self.notify(str(error), severity="warning", markup=False)

    def _carry_out(self, view: View, name: str, argument: str) -> None:  # noqa: C901 - one case for each command
        recording = view.recording
        match name:
            case "next":
                self.action_node(commands.number(argument))
            case "step":
                self.action_event(commands.number(argument))
            case "continue":
                self.action_stop(1)
            case "until":
                self._run_to(commands.node(argument, recording), recording)
            case "event":
                position = commands.number(argument)
                self._move(partial(Playhead.to_position, position=position))
            case "node":
                self._look_at(commands.node(argument, recording), view)
            case "nonfinite":
                self.action_nonfinite()
            case "thread":
                self._only(_thread_named(argument, recording))
            case "task":
                self._open_numbered_task(argument, recording.key.file)
            case "theme":
                self._set_theme(argument)
            case "help":
                self.action_help()
            case "quit":
                self.app.exit()

    def _open_numbered_task(self, argument: str, file: int) -> None:
        if not argument:
            self.action_choose_task()
            return
        number = commands.number(argument)
        if number not in {row.id for row in self._tasks[file]}:
            raise commands.CommandError(f"There is no graph task {number} in this file.")
        self._reader.load(Key(file, number))

    def _set_theme(self, argument: str) -> None:
        if not argument:
            self.app.search_themes()
        elif argument in self.app.available_themes:
            self.app.theme = argument
        else:
            raise commands.CommandError(f"There is no theme {argument}; :theme lists them.")

    # Helpers.

    def _move(self, move: Move) -> None:
        if self.view is not None:
            self._reader.move(move)

    def _run_to(self, node: int, recording: Recording) -> None:
        execution = recording.execution_of.get(node)
        if execution is None:
            self.notify("This node never ran: there is no such moment.")
        else:
            self._move(partial(Playhead.to_seq, seq=execution.seq))

    def _look_at(self, node: int | None, view: View) -> None:
        """Show ``view`` with another node selected."""
        if node is None or node == view.selected:
            self.view = view
        else:
            self.view = replace(view, selected=node)
            self._reader.story(node)

    def _only(self, thread: int | None) -> None:
        if self.view is not None:
            self.view = replace(self.view, thread=thread)

    def _open_task(self, key: Key | None) -> None:
        if key is not None:
            self._reader.load(key)

    def _say(self, text: str) -> None:
        self.query_one("#notice", Static).update(text)

    def _choose(self, name: str) -> None:
        """Make a panel the one that a small screen shows."""
        for panel in self.query(Panel):
            panel.set_class(panel.id == name, "-chosen")
        for tab in self.query(PanelTab):
            tab.set_class(tab.id == f"tab-{name}", "-chosen")

    def _focus_chosen(self) -> None:
        self.set_focus(self.query_one("Panel.-chosen", Panel))

    def _arrange(self) -> None:
        """Give the lanes the room they need and no more."""
        self.query_one(Footer).show_command_palette = not self.has_class("-narrow")
        if self.view is None:
            return
        panels = self.query_one("#panels")
        lanes = len(self.view.recording.thread_ids)
        wide = self.has_class("-wide")
        height = min(max(lanes * (2 if wide else 1) + 3, _LEAST_THREADS), _MOST_THREADS)
        panels.styles.grid_rows = f"{height} {'3fr 2fr' if wide else '1fr 1fr'}"


def _thread_named(argument: str, recording: Recording) -> int | None:
    if argument == "all":
        return None
    thread = commands.number(argument.lstrip("T"))
    if thread not in recording.thread_ids:
        raise commands.CommandError(f"No node ran on a thread T{thread}.")
    return thread
