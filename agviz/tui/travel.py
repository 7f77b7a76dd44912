"""Travel: the keys and commands that move the playhead."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from agviz.tui import commands
from agviz.tui.board import Board
from agviz.tui.commands import Usage
from agviz.tui.model import Playhead
from agviz.tui.panels.events import Events

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agviz.tui.model import View
    from agviz.tui.panels.threads import Threads
    from agviz.tui.relatives import NonfiniteFound

_NODE, _EVENT, _STOP = (Binding.Group(name, compact=True) for name in ("Node", "Event", "Continue"))


class Travel(Board):
    """By nodes, events, findings and threads, forwards and backwards."""

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
        Binding("u", "until", "Run to the cursor", show=False, id="go.until"),
        Binding("x", "nonfinite", "NaN", tooltip="First non-finite", id="go.nonfinite"),
        Binding(
            "less_than_sign", "thread(-1)", "Previous thread", show=False, id="thread.previous"
        ),
        Binding("greater_than_sign", "thread(1)", "Next thread", show=False, id="thread.next"),
        Binding("m", "merge", "All threads", show=False, id="thread.merge"),
    ]

    VERBS: ClassVar[Mapping[str, Usage]] = {
        "next": Usage("[N]", "go N nodes on (negative: back); at an end, into the next pass"),
        "step": Usage("[N]", "go N events on (negative: back); at an end, into the next pass"),
        "continue": Usage(
            "", "go to the next failure or non-finite gradient of any pass, or the end"
        ),
        "until": Usage(
            "NODE", "go to the moment a node is executed: its number, or part of its name"
        ),
        "event": Usage("N", "go to the moment after event N; 0 is the beginning"),
        "node": Usage("NODE", "look at a node: its number, or part of its name"),
        "nonfinite": Usage(
            "", "go to the first non-finite gradient; again: to that of the next pass"
        ),
        "thread": Usage("N|all", "go by one thread's nodes only, or by all"),
    }

    def on_threads_time_picked(self, message: Threads.TimePicked) -> None:
        """Move the playhead."""
        self.move(partial(Playhead.to_seq, seq=message.seq))

    def action_node(self, by: int) -> None:
        """Go to the next or previous node."""
        thread = self.view.thread if self.view else None
        self.move(partial(Playhead.by_nodes, count=by, thread=thread))

    def action_event(self, by: int) -> None:
        """Go to the next or previous event."""
        self.move(partial(Playhead.by_events, count=by))

    def action_stop(self, by: int) -> None:
        """Go to the next or previous failure or non-finite gradient."""
        self.move(partial(Playhead.by_stops, count=by))

    def action_until(self) -> None:
        """Run to the cursor: to the event under it, or to the selected node's start."""
        view = self.view
        if view is None:
            return
        if isinstance(self.focused, Events):
            if self.focused.position is not None:
                self.move(partial(Playhead.to_position, position=self.focused.position))
        elif view.selected is None:
            self.notify("Choose a node first: put the cursor on it.")
        else:
            self.run_to(view.selected, view.recording)

    def action_nonfinite(self) -> None:
        """Go to the first non-finite gradient; from there, to that of the next graph task."""
        if self.view is not None:
            self.reader.to_nonfinite()

    def on_nonfinite_found(self, message: NonfiniteFound) -> None:
        """Go there, and say where that is."""
        if message.place is not None:
            self.go_elsewhere(message.place.graph_task, message.place.seq)
        if message.said:
            self.notify(message.said, markup=False)

    def action_thread(self, by: int) -> None:
        """Go by the next or previous thread's nodes only."""
        if self.view is None:
            return
        threads = self.view.threads
        if self.view.thread not in threads:
            chosen = threads[0 if by > 0 else -1]
        else:
            chosen = threads[(threads.index(self.view.thread) + by) % len(threads)]
        self.only(chosen)

    def action_merge(self) -> None:
        """Go by the nodes of all threads."""
        if self.view is not None and self.view.thread is None:
            self.notify("All threads are shown already; < and > choose one.")
        self.only(None)

    def command_next(self, argument: str) -> None:
        """``:next``."""
        self.action_node(commands.number(argument))

    def command_step(self, argument: str) -> None:
        """``:step``."""
        self.action_event(commands.number(argument))

    def command_continue(self, _argument: str) -> None:
        """``:continue``."""
        self.action_stop(1)

    def command_until(self, argument: str) -> None:
        """``:until``."""
        if self.view is not None:
            recording = self.view.recording
            self.run_to(commands.node(argument, recording), recording)

    def command_event(self, argument: str) -> None:
        """``:event``."""
        self.move(partial(Playhead.to_position, position=commands.number(argument)))

    def command_node(self, argument: str) -> None:
        """``:node``."""
        if self.view is not None:
            self.look_at(commands.node(argument, self.view.recording), self.view)

    def complete_node(self, argument: str) -> Iterable[str]:
        """Modules and parameters."""
        return [] if self.view is None else self.view.recording.columns.places(argument)

    complete_until = complete_node

    def complete_thread(self, argument: str) -> Iterable[str]:
        """Numbers of threads."""
        numbers = [] if self.view is None else self.view.threads
        return [each for each in ("all", *map(str, numbers)) if each.startswith(argument)]

    def command_nonfinite(self, _argument: str) -> None:
        """``:nonfinite``."""
        self.action_nonfinite()

    def command_thread(self, argument: str) -> None:
        """``:thread``."""
        if self.view is not None:
            self.only(_thread_named(argument, self.view))


def _thread_named(argument: str, view: View) -> int | None:
    if argument == "all":
        return None
    thread = commands.number(argument.lstrip("T"))
    if thread not in view.threads:
        raise commands.CommandError(f"No node ran on a thread T{thread}.")
    return thread
