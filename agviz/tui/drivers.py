"""What a key means: drivers. :class:`RecordedDriver` moves the playhead through what was recorded.

:class:`~agviz.tui.live_driver.LiveDriver` is one with a program behind it: it runs the program
where the playhead is at now, and anywhere before that does the same as this one.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from textual.message import Message

from agviz.tui import command_line
from agviz.tui.model import Key, Playhead
from agviz.tui.panels.events import Events
from agviz.tui.reader_thread import Start

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from textual.widget import Widget

    from agviz.analysis.verdict import Verdict
    from agviz.tui.arrangement import Arrangement
    from agviz.tui.board import Board
    from agviz.tui.model import LoadedPass, View
    from agviz.tui.reader_thread import Listed, Loaded, Move

Need = Literal["program", "ranks"]
"""What a command may need: a program that runs, or the screen of all ranks to go back to."""


class RankLeft(Message):
    """The user wants to see all ranks again."""


class OpenedRank(NamedTuple):
    """A rank out of a folder of them."""

    number: int
    graph_task: int
    """The pass at which it is opened."""
    paths: Mapping[int, Path]
    """The file of each rank."""


class RecordedDriver:
    """Moves the playhead.

    Args:
        board: of the screen.
        arrangement: of its panels.
        begins_with_run: whether all passes are listed first.
        compares: whether the first two files are held against each other first.
        rank: which was opened out of a folder of ranks; None: the files themselves were.
    """

    def __init__(
        self,
        board: Board,
        arrangement: Arrangement,
        *,
        begins_with_run: bool = False,
        compares: bool = False,
        rank: OpenedRank | None = None,
    ) -> None:
        self.board = board
        self.arrangement = arrangement
        self.offers: frozenset[Need] = frozenset() if rank is None else frozenset({"ranks"})
        self._begins_with_run = begins_with_run
        self._compares = compares
        self._rank = rank
        if rank is not None:
            board.named = {f"rank {number}": path for number, path in rank.paths.items()}

    # Keys and commands.

    def node(self, by: int) -> None:
        """Go ``by`` nodes on; negative: back."""
        self.move(partial(Playhead.by_nodes, count=by, thread=self.board.shown.thread))

    def event(self, by: int) -> None:
        """Go ``by`` events on; negative: back."""
        self.move(partial(Playhead.by_events, count=by))

    def stop(self, by: int) -> None:
        """Go to the next or previous failure or non-finite gradient."""
        self.move(partial(Playhead.by_stops, count=by))

    def until(self) -> None:
        """Go to the cursor: to the event under it, or to the selected node's start."""
        view, focused = self.board.shown, self.arrangement.focused
        if isinstance(focused, Events):
            if focused.position is not None:
                self.position(focused.position)
        elif view.selected is None:
            self.board.notify("Choose a node first: put the cursor on it.")
        else:
            self.run_to(view.selected, view.recording)

    def until_named(self, name: str) -> None:
        """Go to the moment at which a node was taken up, by its number or a part of its name."""
        recording = self.board.shown.recording
        self.run_to(command_line.node(name, recording), recording)

    def position(self, position: int) -> None:
        """Go behind so many events."""
        self.move(partial(Playhead.to_position, position=position))

    def run_to(self, node: int, recording: LoadedPass) -> None:
        """Go to the moment at which a node was taken up."""
        execution = recording.columns.execution_of(node)
        if execution is None:
            never = "never ran" if recording.is_over else "has not run yet"
            self.board.notify(f"This node {never}: there is no such moment.")
        else:
            self.move(partial(Playhead.to_seq, seq=execution.seq))

    def move(self, move: Move) -> None:
        """Ask for another moment."""
        if self.board.view is not None:
            self._leave_end(self.board.view)
            self.board.reader.move(move)

    def go(self, graph_task: int, seq: int) -> None:
        """Go behind an event of another graph task."""
        if self.board.view is not None:
            self._leave_end(self.board.view)
            self.board.reader.go(graph_task, seq)

    def thread(self, by: int) -> None:
        """Go by the next or previous thread's nodes only."""
        view = self.board.view
        if view is None:
            return
        threads = view.threads
        if view.thread not in threads:
            self.only(threads[0 if by > 0 else -1])
        else:
            self.only(threads[(threads.index(view.thread) + by) % len(threads)])

    def thread_named(self, name: str) -> None:
        """Go by one thread's nodes only, or by ``all``."""
        if name == "all":
            self.only(None)
            return
        thread = command_line.number(name.lstrip("T"))
        if thread not in self.board.shown.threads:
            raise command_line.CommandError(f"No node ran on a thread T{thread}.")
        self.only(thread)

    def merge(self) -> None:
        """Go by the nodes of all threads."""
        if self.board.shown.thread is None:
            self.board.notify("All threads are shown already; < and > choose one.")
        self.only(None)

    def only(self, thread: int | None) -> None:
        """Go by one thread's nodes only; None: by all."""
        if self.board.view is not None:
            self.board.show(replace(self.board.view, thread=thread))

    def follow(self) -> None:
        """Go to the end and stay there; again: stop that."""
        view = self.board.shown
        if view.follows:
            self._leave_end(view)
            self.board.reader.follow(on=False)
        elif view.recording.meta.end_ns is not None:
            self.board.notify("The recording is closed: there is nothing more to come.")
        else:
            self.board.show(replace(view, follows=True))
            self.board.reader.follow(on=True)

    def quit(self) -> None:
        """Leave."""
        self.board.screen.app.exit()

    def leave_rank(self) -> None:
        """Show all ranks again."""
        self.board.screen.app.post_message(RankLeft())
        self.board.screen.dismiss()

    def works_in_prompt(self, command: str) -> bool:
        """Whether a command's key does something while the user types."""
        del command
        return False

    # What the screen shows.

    def widgets(self) -> Iterator[Widget]:
        """Lines of its own, above the status line."""
        return iter(())

    def begin(self) -> None:
        """The screen is there."""

    def drawn(self, view: View) -> None:
        """Another view is drawn."""

    def loaded(self, message: Loaded) -> None:
        """Another graph task is about to be shown."""
        del message
        if self._compares:
            self._compares = False
            self.board.screen.call_after_refresh(self.board.compare_files)

    @property
    def goes_on(self) -> bool:
        """Whether what comes behind the last event is still to happen."""
        return False

    def listed(self, message: Listed) -> None:
        """Open the first graph task that is unusual, or the first; or say that there is none."""
        board = self.board
        board.take_list(message)
        if board.view is not None and not message.is_anew:
            board.screen.refresh_bindings()
            return
        if board.view is not None:
            key = board.view.recording.key
            if message.tasks[key.file].has(key.graph_task):
                board.reader.load(key)
                return
        first = next(
            (Key(file, tasks.ids[0]) for file, tasks in enumerate(message.tasks) if tasks), None
        )
        if first is not None:
            start = self._start(message) or Start(first, -1, "")
            if self._begins_with_run:
                self._begins_with_run = False
                board.show_run(start.key, lambda: self._open(start))
            else:
                board.reader.begin(start)
        elif message.is_growing:
            self.arrangement.say(
                "No backward pass yet.\n\n"
                "The program has not called backward or grad; what it does appears here."
            )
        else:
            self.arrangement.say("\n\n".join([*_no_pass(message.found), "Press q to leave."]))

    def _open(self, start: Start) -> None:
        """Open a pass behind the list of them, which is painted first."""
        self.board.opening.release()
        self.board.screen.app.screen.call_after_refresh(self.board.reader.begin, start)

    def _start(self, message: Listed) -> Start | None:
        if self._rank is None or self.board.view is not None or not message.is_anew:
            return message.start
        why = f"opened at this pass of rank {self._rank.number}"
        return Start(Key(0, self._rank.graph_task), -1, why)

    def _leave_end(self, view: View) -> None:
        if view.follows:
            self.board.show(replace(view, follows=False))


def _no_pass(found: Sequence[Verdict]) -> Iterator[str]:
    yield "This trace holds no backward pass."
    wrong = [verdict for verdict in found if verdict.is_found]
    for verdict in wrong:
        yield f"{verdict.outcome.glyph} {verdict.heading}"
        yield "\n".join(text for text in (verdict.line, verdict.source, verdict.paragraph) if text)
    if not wrong:
        yield "The program ended before it called backward or grad."
