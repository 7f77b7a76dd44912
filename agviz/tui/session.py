"""The session: one screen with all panels on one graph task.

The screen holds one :class:`~agviz.tui.model.View`; a key asks the reader thread for something,
its answer makes a new view, and every panel draws that. What the keys do is in its parts.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from agviz.traces.inferred import LEGEND, UNSEEN, is_observed
from agviz.tui import commands
from agviz.tui.arranging import Arranging
from agviz.tui.asking import Asking
from agviz.tui.commands import Usage
from agviz.tui.filtering import Filtering
from agviz.tui.following import Following
from agviz.tui.model import Key, View
from agviz.tui.panels.events import Events
from agviz.tui.panels.graph import GraphPanel
from agviz.tui.panels.panel import Panel
from agviz.tui.prompt import Prompt
from agviz.tui.reader_thread import Start
from agviz.tui.screens.help import Help
from agviz.tui.screens.tasks import TaskPicker
from agviz.tui.searching import Searching
from agviz.tui.title import Status, Title
from agviz.tui.travel import Travel

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from agviz.analysis.verdict import Verdict
    from agviz.tui.reader_thread import (
        Filtered,
        Grown,
        Listed,
        Loaded,
        Located,
        PageRead,
        PlayheadMoved,
        ReaderCrashed,
        ReadFailed,
        StoryRead,
    )


class Session(Arranging, Asking, Following, Filtering, Searching, Travel):
    """All panels, the playhead and the selection."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("t", "choose_task", "Choose a graph task", show=False, id="task.choose"),
        Binding("y", "copy", "Copy", show=False, id="copy"),
        Binding("question_mark,f1", "help", "Help", id="help"),
        Binding("q", "app.quit", "Quit", id="quit"),
    ]

    VERBS: ClassVar[Mapping[str, Usage]] = {
        "task": Usage("[N]", "open another graph task"),
        "theme": Usage("[NAME]", "change the colours"),
        "help": Usage("", "list the commands and keys"),
        "quit": Usage("", "leave agviz"),
    }

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
        """Open the first graph task that is unusual, or the first; or say that there is none."""
        self.take_list(message)
        if self.view is not None and not message.is_anew:
            self.refresh_bindings()
            return
        if self.view is not None and any(
            row.id == self.view.recording.key.graph_task
            for row in message.tasks[self.view.recording.key.file]
        ):
            self.reader.load(self.view.recording.key)
            return
        first = next(
            (Key(file, rows[0].id) for file, rows in enumerate(message.tasks) if rows), None
        )
        if first is not None:
            self.reader.begin(message.start or Start(first, -1, ""))
            if self.picks:
                self.call_after_refresh(self.action_choose_task)
            return
        if message.is_growing:
            self.say(
                "No backward pass yet.\n\n"
                "The program has not called backward or grad; what it does appears here."
            )
        else:
            self.say("\n\n".join([*_no_pass(message.found), "Press q to leave."]))

    def take_list(self, message: Listed) -> None:
        """Take over which graph tasks there are."""
        self.tasks, self.unusual = message.tasks, message.marks
        for screen in self.app.screen_stack:
            if isinstance(screen, TaskPicker):
                screen.renew(message.tasks, message.marks)

    def on_loaded(self, message: Loaded) -> None:
        """Show a graph task."""
        before, recording = self.view, message.recording
        self.add_class("-loaded")
        self.refresh_bindings()
        self.forget_matches()
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
            view = replace(view, thread=before.thread, busy=before.busy)
        if (
            before is not None
            and before.recording.key == recording.key
            and before.recording.is_of(recording.meta)
        ):
            node = before.selected if message.match is None else node
        self.look_at(node, view)
        self.share_room()
        if before is None:
            self.call_after_refresh(self.focus_chosen)

    def on_grown(self, message: Grown) -> None:
        """Show what was read on, or has happened since."""
        view = self.view
        if view is None or not message.recording.is_same(view.recording):
            return
        for piece in message.pieces:
            message.recording.columns.add(piece)
        recording = replace(message.recording, read=message.recording.columns.version)
        self.view = replace(view, recording=recording)
        if view.selected is None and len(recording.columns):
            self.look_at(recording.columns.node_at(0), self.view)

    def on_playhead_moved(self, message: PlayheadMoved) -> None:
        """Show another moment."""
        view = self.view
        if view is None or view.recording.key != message.key:
            return
        end = "beginning" if message.moment.position == 0 else "end"
        if message.said:
            self.notify(message.said)
        elif not message.moved:
            self.notify(f"The playhead is at the {end}.")
        view = replace(view, moment=message.moment, why="")
        node = message.moment.node
        self.view = view if node is None else replace(view, selected=node, story=message.story)

    def on_filtered(self, message: Filtered) -> None:
        """List only some events."""
        if self.view is not None and self.view.recording.key == message.key:
            self.query_one(Events).show_filtered(message.filter, message.seqs)
            if not message.seqs:
                self.notify(
                    f"No event fits “{message.filter.text}”; :filter lists all.", markup=False
                )

    def on_page_read(self, message: PageRead) -> None:
        """Show events."""
        if self.view is not None and self.view.recording.key == message.key:
            self.query_one(Events).add_page(message)

    def on_story_read(self, message: StoryRead) -> None:
        """Show what happened to a node, unless another one is looked at by now."""
        view = self.view
        if view is None or view.recording.key != message.key:
            self.together.release()
            return
        if view.selected in {None, message.story.node.index}:
            self.view = replace(view, story=message.story)
        self.together.came()

    def on_located(self, message: Located) -> None:
        """Put the cursor of the events where a node was taken up."""
        if self.view is not None and self.view.recording.key == message.key:
            self.query_one(Events).go_to(message.offset, message.seq)
        self.together.came()

    def on_read_failed(self, message: ReadFailed) -> None:
        """Say what is wrong with the file."""
        if self.view is None:
            self.say(f"✗ {message.sentence}\n\nPress q to leave.")
        else:
            self.notify(message.sentence, severity="error", timeout=20, markup=False)

    def on_reader_crashed(self, message: ReaderCrashed) -> None:
        """End with the error of the reader thread."""
        raise message.error

    # What the user does in a panel.

    def on_panel_node_selected(self, message: Panel.NodeSelected) -> None:
        """Look at another node."""
        if self.view is not None:
            self.look_at(message.node, self.view)

    def on_panel_elsewhere_picked(self, message: Panel.ElsewherePicked) -> None:
        """Go to another graph task."""
        self.go_elsewhere(message.graph_task, message.seq)

    def on_events_page_wanted(self, message: Events.PageWanted) -> None:
        """Read events."""
        self.reader.page(message.page, message.filter)

    # Keys.

    def check_action(
        self,
        action: str,  # noqa: ARG002 - Textual passes it
        parameters: tuple[object, ...],  # noqa: ARG002 - Textual passes it
    ) -> bool | None:
        """While the prompt is open, and before there is a trace, keys do nothing."""
        return self.view is not None and not self.query_one(Prompt).has_class("-open")

    def action_choose_task(self) -> None:
        """Open the choice of graph tasks."""
        if any(self.tasks):
            current = self.view.recording.key if self.view else None
            picker = TaskPicker(self.paths, self.tasks, self.unusual, current)
            self.app.push_screen(picker, self._open_task)
            self.reader.judge()

    def action_copy(self) -> None:
        """Copy what the focused panel has selected."""
        text = self.focused_panel.copy_text() if self.focused_panel else ""
        if text:
            self.app.copy_to_clipboard(text)
            self.notify(f"Copied: {text}", timeout=3, markup=False)
        else:
            self.notify("There is nothing to copy here.")

    def action_help(self) -> None:
        """Explain the focused panel and its keys."""
        panel = self.focused_panel or self.query_one(GraphPanel)
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
        text = panel.HELP
        if self.view is not None and is_observed(self.view.recording.meta):
            text += f"\n\n{LEGEND}. So is which nodes are ready and which wait; {UNSEEN}."
        self.app.push_screen(
            Help(
                panel.HEADING,
                text,
                [(f"Keys in {panel.HEADING}", here), ("Keys everywhere", everywhere)],
                self.all_commands(),
            )
        )

    # Commands.

    def command_task(self, argument: str) -> None:
        """``:task``."""
        if not argument:
            self.action_choose_task()
        elif self.view is not None:
            file, number = self.view.recording.key.file, commands.number(argument)
            if number not in {row.id for row in self.tasks[file]}:
                raise commands.CommandError(f"There is no graph task {number} in this file.")
            self.reader.load(Key(file, number))

    def command_theme(self, argument: str) -> None:
        """``:theme``."""
        if not argument:
            self.app.search_themes()
        elif argument in self.app.available_themes:
            self.app.theme = argument
        else:
            raise commands.CommandError(f"There is no theme {argument}; :theme lists them.")

    def complete_theme(self, argument: str) -> Iterable[str]:
        """Names of themes."""
        return [name for name in self.app.available_themes if name.startswith(argument)]

    def complete_task(self, argument: str) -> Iterable[str]:
        """Numbers of graph tasks."""
        rows = [] if self.view is None else self.tasks[self.view.recording.key.file]
        return [str(row.id) for row in rows if str(row.id).startswith(argument)]

    def command_help(self, _argument: str) -> None:
        """``:help``."""
        self.action_help()

    def command_quit(self, _argument: str) -> None:
        """``:quit``."""
        self.app.exit()

    def _open_task(self, key: Key | None) -> None:
        if key is not None:
            self.reader.load(key)


def _no_pass(found: Sequence[Verdict]) -> Iterator[str]:
    yield "This trace holds no backward pass."
    wrong = [verdict for verdict in found if verdict.is_found]
    for verdict in wrong:
        yield f"{verdict.outcome.glyph} {verdict.heading}"
        yield "\n".join(text for text in (verdict.line, verdict.source, verdict.paragraph) if text)
    if not wrong:
        yield "The program ended before it called backward or grad."
