"""The screen of two passes beside each other."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from pathlib import PurePath
from typing import TYPE_CHECKING, ClassVar, Final

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.widgets import Input, Static

from agviz.analysis.alignment import NOWHERE
from agviz.tui.comparing import read_pair, say_row, seek_row
from agviz.tui.hints import Hints
from agviz.tui.modes import ModeBar, ModeScreen
from agviz.tui.pairing import PassPair, step_pair
from agviz.tui.panels.compare import CompareAnswer, CompareList
from agviz.tui.panels.panel import Panels
from agviz.tui.reader_thread import Start
from agviz.tui.screens.help import Help, keys_of
from agviz.tui.stack import is_open, leave
from agviz.words.safe import clean
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from textual.app import ComposeResult

    from agviz.tui.comparing import CompareRead, RowFound, RowSaid
    from agviz.tui.pairing import PairFound
    from agviz.tui.reader_thread import ReaderThread

_AROUND: Final = 3
"""Lines that are no panels: both heads and hints."""
_SHARE: Final = 0.6
_TOLERANCES: Final = (0.0, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1)
"""How far norms may be apart, as a share of the larger one."""


class CompareScreen(ModeScreen[Start | None]):
    """Opens over the trace; its result is the place that the user wants to see.

    Args:
        reader: the thread that reads the files.
        paths: the files.
        pair: the passes.
        node: of the pass ``side``, to begin at; None: at the first difference.
        side: 0 for A, 1 for B.
        seeks: whether one goes on to the first passes that differ.
    """

    MODE = "Compare"
    AUTO_FOCUS = "#compare-list"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(
            "d", "difference(1)", "Next", tooltip="Next difference", id="compare.next-difference"
        ),
        Binding("D", "difference(-1)", "Previous", show=False, id="compare.previous-difference"),
        Binding("f", "first", "First", tooltip="First difference", id="compare.first-difference"),
        Binding("x", "nonfinite", "NaN", tooltip="Next non-finite", id="compare.nonfinite"),
        Binding("c", "seek", "Passes", tooltip="Next passes that differ", id="compare.seek"),
        Binding(
            "right_square_bracket", "step(1)", "Next pass of B", show=False, id="compare.next-b"
        ),
        Binding(
            "left_square_bracket", "step(-1)", "Previous of B", show=False, id="compare.previous-b"
        ),
        Binding("right_parenthesis", "both(1)", "Next passes", show=False, id="compare.next-both"),
        Binding(
            "left_parenthesis", "both(-1)", "Previous ones", show=False, id="compare.previous-both"
        ),
        Binding("t", "slower", "Slower", tooltip="What took longer in B", id="compare.slower"),
        Binding(
            "plus,equals_sign", "tolerate(1)", "Tolerance", show=False, id="compare.tolerate-more"
        ),
        Binding("minus", "tolerate(-1)", "Less of it", show=False, id="compare.tolerate-less"),
        Binding("s", "swap", "Swap", id="compare.swap"),
        Binding("slash", "search", "Search", id="compare.search"),
        Binding("full_stop", "match(1)", "Next match", show=False, id="compare.next-match"),
        Binding("comma", "match(-1)", "Previous match", show=False, id="compare.previous-match"),
        Binding("escape,backspace", "back", "Back", show=False, id="compare.back"),
        Binding("y", "copy", "Copy", show=False, id="compare.copy"),
        Binding("question_mark,f1", "help", "Help", id="compare.help"),
        Binding("q", "app.quit", "Quit", id="compare.quit"),
    ]

    def __init__(
        self,
        reader: ReaderThread,
        paths: Sequence[Path],
        pair: PassPair,
        *,
        node: int | None = None,
        side: int = 0,
        seeks: bool = False,
    ) -> None:
        super().__init__()
        self._reader = reader
        self._paths = paths
        self.pair = pair
        self._node, self._side = node, side
        self._seeks = seeks
        self._words = ""
        self._tolerance = 0
        """Place among :data:`_TOLERANCES`."""
        self._beyond: Sequence[int] = ()
        """Rows that differ by more."""
        self._slower = -1
        """Place of the row that took longer in B and was looked at last."""
        self.read: CompareRead | None = None
        """What is known; it is shown once it is read to its end."""

    def compose(self) -> ComposeResult:
        """Heads, lines, what differs, hints."""
        with Horizontal(id="head"):
            yield Static("", id="compare-a", markup=False)
            yield ModeBar("Compare")
        yield Static("", id="compare-b", markup=False)
        with Panels(id="compare"):
            yield CompareList(id="compare-list")
            yield CompareAnswer(id="compare-answer")
        yield Input(compact=True, placeholder="part of a name, a module", id="compare-words")
        yield Hints(id="hints")

    def on_mount(self) -> None:
        """Read."""
        self.query_one(Input).display = False
        self._begin(self.pair)

    def on_resize(self) -> None:
        """Share out the room."""
        share = int((self.size.height - _AROUND) * _SHARE)
        self.query_one(CompareList).styles.height = share

    # What the reader thread found.

    def _begin(self, pair: PassPair) -> None:
        self.pair = pair
        self.query_one(CompareList).show_rows(None)
        self._ask(self.read)

    def _ask(self, before: CompareRead | None) -> None:
        self._reader.ask_files(read_pair(self.pair, before, seeks=self._seeks), self._take_read)

    def _take_read(self, message: CompareRead) -> None:
        """Show what is known, and go on."""
        if not is_open(self):
            return
        self.read, self.pair = message, message.pair
        self._show_heads(message.heads)
        answer, rows, beside = (
            self.query_one(CompareAnswer),
            self.query_one(CompareList),
            message.beside,
        )
        if not beside.is_read:
            doing = f"{beside.doing} …"
            if message.same:
                doing = f"{plural(message.same, 'pair')} of passes before are the same; {doing}"
            answer.show_found([doing])
            self._ask(message)
            return
        self._seeks, self._slower = False, -1
        self._show_rows()
        said = list(message.said)
        if message.same and beside.same:
            said[0] = f"No difference in {plural(message.same + 1, 'pair')} of passes."
        elif message.same:
            said.append(f"{plural(message.same, 'pair')} of passes before are the same.")
        answer.show_found(said)
        at = beside.first or 0
        if self._node is not None and self._node < len(beside.b if self._side else beside.a):
            at = beside.row_of(self._node, of_b=bool(self._side))
        self._node = None
        rows.put_cursor(at)
        self.on_compare_list_line_moved()

    def _show_rows(self) -> None:
        """List the rows, with what is tolerated."""
        if self.read is None:
            return
        beside, tolerance = self.read.beside, _TOLERANCES[self._tolerance]
        self._beyond = beside.beyond(tolerance) if tolerance else beside.differing
        rows, differing = self.query_one(CompareList), len(self._beyond)
        rows.show_rows(beside, tolerance)
        said = f"{len(beside):,} rows, {differing:,} differ{'s' * (differing == 1)}"
        if tolerance:
            near = len(beside.differing) - differing
            said += f", {near:,} by at most {tolerance:g} of the norm"
        rows.subtitle(said)

    def _take_row(self, message: RowSaid) -> None:
        if is_open(self) and message.row == self.query_one(CompareList).cursor:
            is_first = self.read is not None and message.row == self.read.beside.first
            self.query_one(CompareAnswer).show_row(message, comes_first=not is_first)

    def _take_pair(self, message: PairFound) -> None:
        if not is_open(self):
            return
        if message.pair is None:
            self.notify(message.said, markup=False)
        else:
            self._begin(message.pair)

    def _take_match(self, message: RowFound) -> None:
        if not is_open(self):
            return
        if message.row is None:
            self.notify(f"No node fits “{self._words}”.", markup=False)
        else:
            self._go(message.row)

    # What the user does.

    def on_compare_list_line_moved(self) -> None:
        """Say what is known of the line."""
        if self._is_read and self.read is not None and len(self.read.beside):
            cursor = self.query_one(CompareList).cursor
            self._reader.ask_files(say_row(self.read.beside, cursor), self._take_row)

    def on_compare_list_side_opened(self, message: CompareList.SideOpened) -> None:
        """Look at the node in its pass."""
        if not self._is_read or self.read is None or not len(self.read.beside):
            return
        beside, row = self.read.beside, self.read.beside[self.query_one(CompareList).cursor]
        columns, node = (beside.b, row.b) if message.side else (beside.a, row.a)
        if node == NOWHERE:
            self.notify(f"This node is not in {'AB'[message.side]}.")
            return
        seq = columns.starts[node]
        why = "" if seq >= 0 else "this node never ran"
        leave(self, Start(self.pair[message.side], seq, why))

    def on_input_submitted(self, message: Input.Submitted) -> None:
        """Go to what is sought."""
        self._words = message.value.strip()
        self._leave_field()
        self.action_match(1)

    def action_difference(self, by: int) -> None:
        """Go to the next or previous row that differs."""
        if self._is_read and self.read is not None:
            self._walk(self._beyond, by, "differs")

    def action_nonfinite(self) -> None:
        """Go to the next row that is not finite, from the last one to the first."""
        if self._is_read and self.read is not None:
            bad = self.read.beside.bad
            place = bisect_right(bad, self.query_one(CompareList).cursor)
            if bad:
                self._go(bad[place % len(bad)])
            else:
                self.notify("Nothing that was measured is not finite.")

    def action_slower(self) -> None:
        """Go to the row that took most longer in B, then to the next one."""
        if self._is_read and self.read is not None:
            slower = self.read.beside.slower
            if slower:
                self._slower = (self._slower + 1) % len(slower)
                self._go(slower[self._slower])
            else:
                self.notify("No node took much longer in B.")

    def action_tolerate(self, by: int) -> None:
        """Tolerate norms that are further apart, or less."""
        wanted = self._tolerance + by
        if self._is_read and 0 <= wanted < len(_TOLERANCES):
            self._tolerance = wanted
            self._show_rows()

    def action_first(self) -> None:
        """Go to the first difference."""
        if self._is_read and self.read is not None:
            first = self.read.beside.first
            if first is None:
                self.notify("Nothing differs.")
            elif first in self._beyond or not self._beyond:
                self._go(first)
            else:
                self._go(self._beyond[0])

    def action_seek(self) -> None:
        """Go to the next passes that differ."""
        self._seeks = True
        self.action_both(1)

    def action_step(self, by: int) -> None:
        """Compare with another pass of B."""
        self._reader.ask_files(step_pair(self.pair, by, both=False), self._take_pair)

    def action_both(self, by: int) -> None:
        """Compare the next passes of both."""
        self._reader.ask_files(step_pair(self.pair, by, both=True), self._take_pair)

    def action_swap(self) -> None:
        """Have A at the right and B at the left."""
        self._begin(PassPair(self.pair.b, self.pair.a))

    def action_search(self) -> None:
        """Ask what is sought."""
        field = self.query_one(Input)
        field.value = ""
        field.display = True
        field.focus()

    def action_match(self, by: int) -> None:
        """Go to the next or previous row that fits."""
        if self._is_read and self.read is not None and self._words:
            cursor = self.query_one(CompareList).cursor
            question = seek_row(self.read.beside, self._words, cursor, by)
            self._reader.ask_files(question, self._take_match)

    def action_back(self) -> None:
        """Leave the search, or else go back to the pass."""
        if self.query_one(Input).display:
            self._leave_field()
        else:
            self.dismiss(None)

    def action_copy(self) -> None:
        """Copy what was found."""
        said = [] if self.read is None else self.read.said
        if said:
            self.app.copy_to_clipboard("\n".join(said))
            self.notify("Copied.", timeout=3)

    def action_help(self) -> None:
        """Explain the glyphs and the keys."""
        of_list, everywhere = keys_of(self, self.query_one(CompareList))
        keys = [("Keys", of_list + everywhere)]
        self.app.push_screen(Help(CompareList.HEADING, CompareList.HELP, keys, ()))

    @property
    def _is_read(self) -> bool:
        return self.read is not None and self.read.beside.is_read and self.read.pair == self.pair

    def _leave_field(self) -> None:
        self.query_one(Input).display = False
        self.query_one(CompareList).focus()

    def _walk(self, rows: Sequence[int], by: int, what: str) -> None:
        cursor = self.query_one(CompareList).cursor
        place = bisect_right(rows, cursor) if by > 0 else bisect_left(rows, cursor) - 1
        if 0 <= place < len(rows):
            self._go(rows[place])
        else:
            where = "behind" if by > 0 else "before"
            self.notify(f"No line {where} this one {what}.")

    def _go(self, row: int) -> None:
        self.query_one(CompareList).put_cursor(row)
        self.on_compare_list_line_moved()

    def _show_heads(self, heads: tuple[str, str]) -> None:
        for name, key, head in zip("ab", self.pair, heads, strict=True):
            file = clean(PurePath(self._paths[key.file]).name)
            line = Text.assemble((f"{name.upper()} ", "bold"), f"{file}  {clean(head)}")
            line.no_wrap, line.overflow = True, "ellipsis"
            self.query_one(f"#compare-{name}", Static).update(line)
