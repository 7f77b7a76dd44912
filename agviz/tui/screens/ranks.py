"""The screen of all ranks: their lanes over one axis of time, for one pass or several."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.screen import Screen
from textual.widgets import Static

from agviz.tui.hints import Hints
from agviz.tui.panels.panel import Panel, Panels
from agviz.tui.panels.ranks import RankLanes, RankPanel
from agviz.tui.panels.what_happened import WhatHappened
from agviz.tui.ranks_reader import Wanted
from agviz.tui.screens.help import Help, keys_of
from agviz.words.safe import clean
from agviz.words.units import duration, plural

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from textual.app import ComposeResult

    from agviz.analysis.verdict import Verdict
    from agviz.ranks.slow import RankWork
    from agviz.tui.ranks_reader import (
        RanksJudged,
        RanksReader,
        RanksShown,
        RanksWindow,
        RankWorkRead,
    )
    from agviz.tui.reader_thread import ReaderCrashed, ReadFailed

_AROUND: Final = 4
"""Lines that are no lanes: title, hints, borders; the axis counts with the lanes."""
_FACTS: Final = 13
"""Lines that what happened and the rank's own facts have at least, with their borders."""
_LEAST: Final = 5
_LEAST_FACTS: Final = 6
_LOW: Final = 20
"""Lines below which only the lanes and the rank's own facts have room."""
_ZOOM: Final = Binding.Group("Passes shown", compact=True)


class RanksScreen(Screen[None]):
    """All ranks.

    Args:
        folder: of their traces.
        reader: the thread that reads them; it posts its answers to this screen.
    """

    AUTO_FOCUS = "#rank-lanes"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open rank", id="ranks.open"),
        Binding("x", "longest", "Longest wait", id="ranks.longest"),
        Binding("minus", "zoom(2)", "More passes", group=_ZOOM, id="ranks.more-passes"),
        Binding("plus,equals_sign", "zoom(0.5)", "Fewer", group=_ZOOM, id="ranks.fewer-passes"),
        Binding("0", "zoom(0)", "This pass only", show=False, id="ranks.one-pass"),
        Binding("e,space", "fold", "Fold", id="ranks.fold"),
        Binding("R", "reopen", "Read the folder anew", show=False, id="ranks.reopen"),
        Binding("y", "copy", "Copy the file's name", show=False, id="ranks.copy"),
        Binding("question_mark,f1", "help", "Help", id="ranks.help"),
        Binding("q", "app.quit", "Quit", id="ranks.quit"),
    ]

    class RankPicked(Message):
        """The user wants to look at one rank."""

        def __init__(self, paths: Mapping[int, Path], number: int, graph_task: int) -> None:
            super().__init__()
            self.paths, self.number, self.graph_task = paths, number, graph_task

    def __init__(self, folder: Path, reader: RanksReader) -> None:
        super().__init__()
        self._folder = folder
        self._reader = reader
        self.window: RanksWindow | None = None
        """What is shown."""
        self._asked: Wanted | None = None
        """What was asked for last."""
        self._wanted: Wanted | None = None
        """The same, with the number of the pass where it was left to the reader."""
        self.verdicts: tuple[Verdict, ...] = ()
        """What is said of the run; empty: it is being found."""
        self._works: dict[int, RankWork] = {}
        self._longest = 0
        self._has_chosen = False
        """Whether the user has moved the cursor."""

    def compose(self) -> ComposeResult:
        """Title, lanes, facts, hints."""
        yield Static("", id="ranks-title", markup=False)
        with Panels(id="ranks"):
            yield RankLanes(id="rank-lanes")
            yield WhatHappened(id="ranks-answer")
            yield RankPanel(id="rank-facts")
        yield Hints(id="hints")

    def on_mount(self) -> None:
        """Begin with the pass with the longest wait."""
        self.query_one("#ranks-title", Static).update(self._title())
        self.query_one(WhatHappened).more = "agviz explain says all"

    def on_resize(self) -> None:
        """Fold anew where there is another number of lines."""
        self._fit_answer()
        wanted = self._wanted or Wanted(-1, 1, 1)
        self._ask(wanted if wanted.most == 0 else wanted._replace(most=self._most))

    def _fit_answer(self) -> None:
        """Give what happened the lines that it needs, and leave some for the rank's own facts."""
        answer, lanes = self.query_one(WhatHappened), self.query_one(RankLanes)
        room = self.size.height - 2 - (lanes.lanes + 3) - _LEAST_FACTS
        answer.styles.height = max(_LEAST, min(answer.height_for(self.size.width), room))

    # What the reader thread found.

    def on_ranks_shown(self, message: RanksShown) -> None:
        """Show a window."""
        if message.window.wanted is not self._asked or self._wanted is None:
            return
        is_first = self.window is None
        self.window, self._works = message.window, {}
        self._wanted = self._wanted._replace(ordinal=message.window.ordinal)
        self._show()
        if is_first:
            self.refresh_bindings()

    def on_ranks_judged(self, message: RanksJudged) -> None:
        """Say what happened in the whole run."""
        self.verdicts = message.verdicts
        self.query_one(WhatHappened).show_verdicts(message.verdicts)
        self._fit_answer()
        if message.ranks and not self._has_chosen:
            self.query_one(RankLanes).put_on(message.ranks[0])
            self._show_rank()

    def on_rank_work_read(self, message: RankWorkRead) -> None:
        """Show its device threads, and which nodes took long."""
        if self.window is not None and message.wanted is self.window.wanted:
            self._works[message.number] = message.work
            self._show(is_more=bool(message.work.threads))

    def on_read_failed(self, message: ReadFailed) -> None:
        """Say what is wrong with a file."""
        self.notify(message.sentence, severity="error", timeout=20, markup=False)

    def on_reader_crashed(self, message: ReaderCrashed) -> None:
        """End with the error of the reader thread."""
        raise message.error

    def on_panel_node_selected(self, _message: Panel.NodeSelected) -> None:
        """Say more about another rank."""
        self._has_chosen = True
        self._show_rank()

    # Keys.

    def action_open(self) -> None:
        """Open the rank under the cursor."""
        rank = self.query_one(RankLanes).rank
        if rank is None:
            self.action_fold()
        elif rank.graph_task is None:
            self.notify(f"Rank {rank.number} made no such pass.")
        elif self.window is not None:
            paths = self.window.paths
            self.post_message(self.RankPicked(paths, rank.number, rank.graph_task))

    def action_pass(self, by: int) -> None:
        """Look at the next or previous pass."""
        if self.window is None or self._wanted is None:
            return
        ordinal = max(0, self._wanted.ordinal) + by
        if 0 <= ordinal < self.window.passes:
            self._ask(self._wanted._replace(ordinal=ordinal))
        else:
            self.notify(f"This is the {'last' if by > 0 else 'first'} pass.")

    def action_longest(self) -> None:
        """Look at the pass with the longest wait; then at that with the next longest."""
        if self.window is None or self._wanted is None:
            return
        longest = self.window.longest
        if not longest:
            self.notify("No rank waited for another in a pass.")
            return
        if self._wanted.ordinal == longest[self._longest]:
            self._longest = (self._longest + 1) % len(longest)
        else:
            self._longest = 0
        self.notify(
            f"Number {self._longest + 1:,} of {plural(len(longest), 'pass', 'passes')} by the"
            " longest wait."
        )
        self._ask(self._wanted._replace(ordinal=longest[self._longest]))

    def action_zoom(self, factor: float) -> None:
        """Show more passes beside each other, or fewer."""
        if self.window is not None and self._wanted is not None:
            most = max(1, self.window.passes)
            together = min(max(1, int(self._wanted.together * factor)), most)
            if together != self._wanted.together:
                self._ask(self._wanted._replace(together=together))

    def action_fold(self) -> None:
        """Show every rank, or the odd ones."""
        if self._wanted is not None and self.window is not None:
            is_all = self._wanted.most == 0
            if not is_all and not self.window.chosen.folded:
                self.notify("Every rank is shown.")
                return
            self._ask(self._wanted._replace(most=self._most if is_all else 0))

    def action_reopen(self) -> None:
        """Read the folder anew."""
        self._reader.reopen()

    def action_copy(self) -> None:
        """Copy the name of the file of the rank under the cursor."""
        text = self.query_one(RankLanes).copy_text()
        if text:
            self.app.copy_to_clipboard(text)
            self.notify(f"Copied: {text}", timeout=3, markup=False)

    def action_help(self) -> None:
        """Explain the lanes and the keys."""
        of_lanes, everywhere = keys_of(self, self.query_one(RankLanes))
        keys = [("Keys", of_lanes + everywhere)]
        self.app.push_screen(Help(RankLanes.HEADING, RankLanes.HELP, keys, ()))

    # Drawing.

    @property
    def _most(self) -> int:
        """Lines there is room for beside the rank's own facts and the line above those folded."""
        return max(_LEAST, self.size.height - _AROUND - _FACTS - 2)

    def _ask(self, wanted: Wanted) -> None:
        self._asked = self._wanted = wanted
        self._reader.show(wanted)

    def _show(self, *, is_more: bool = True) -> None:
        window, lanes = self.window, self.query_one(RankLanes)
        if window is None:
            return
        self.query_one(WhatHappened).display = self.size.height >= _LOW
        if is_more:
            lanes.show_window(window, self._works)
            room = self.size.height - _AROUND - _FACTS + 2
            most = min(max(room, _LEAST + 3), self.size.height - 6)
            lanes.styles.height = max(3, min(lanes.lanes + 3, most))
            self._fit_answer()
        self.query_one("#ranks-title", Static).update(self._title())
        self._show_rank()

    def _show_rank(self) -> None:
        rank = self.query_one(RankLanes).rank
        if self.window is not None:
            work = None if rank is None else self._works.get(rank.number)
            self.query_one(RankPanel).show_rank(rank, self.window, work)

    def _title(self) -> Text:
        window = self.window
        line = Text.assemble(("agviz", "bold"), f"  {clean(self._folder.absolute().name)}  ")
        line.no_wrap, line.overflow = True, "ellipsis"
        if window is None:
            line.append("reading the ranks …")
            return line
        passes = f"pass {window.ordinal:,} of {window.passes:,}"
        if window.last > window.first:
            passes += f" ({window.first:,} to {window.last:,} shown)"
        facts = [
            clean(window.script),
            passes,
            plural(window.world_size, "rank"),
            duration(window.end_ns - window.begin_ns),
        ]
        if window.missing:
            named = ", ".join(map(str, window.missing[:4])) + (
                ", …" if len(window.missing) > 4 else ""
            )
            facts.insert(2, f"✗ no trace of rank {named}")
        line.append(" · ".join(filter(None, facts)))
        return line
