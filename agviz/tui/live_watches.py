"""What a user watches in a program: expressions with their values at each stop.

The values of ``:watch`` are in lines above the state line, which every size of screen shows; those
of ``:display`` are printed to *Output* at each stop, as gdb does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rich.text import Text
from textual.widgets import Static

from agviz.debugger.breakpoint_file import PLACE, BreakpointFile, WatchedExpression
from agviz.errors import AgvizError
from agviz.tui import command_line
from agviz.tui.command_line import CommandError
from agviz.tui.panels.output import ANSWER
from agviz.tui.text import left
from agviz.words.safe import clean
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agviz.debugger.messages import ExpressionValue
    from agviz.tui.board import Board
    from agviz.tui.program import LiveProgram

MOST: Final = 100
_WIDEST: Final = 40
"""Cells of an expression, beside which its value is."""
_LINES_PER_WATCH: Final = 8
"""One line of so many on the screen is for what is watched."""
_TAILS: Final = (".grad.norm()", ".grad.abs().max()", ".grad is None", ".norm()")
"""What is often asked of a parameter."""


@dataclass
class _Watched:
    """An expression, and its values at the last stops."""

    number: int
    expression: WatchedExpression
    now: ExpressionValue | None = None
    """None: there was no stop since it is watched."""
    before: ExpressionValue | None = None
    """At the stop before that one."""

    def take(self, value: ExpressionValue) -> None:
        """Another stop."""
        self.before, self.now = self.now, value

    @property
    def has_changed(self) -> bool:
        """Whether it was something else at the stop before."""
        return self.before is not None and self.before != self.now

    def line(self, width: int) -> Text:
        """Number, expression and value; what has changed also has what it was."""
        text = left(self.expression.text, width)
        line = Text.assemble((f"{self.number:>2} ", "dim"), f"{text}  ")
        if self.now is None:
            line.append("no stop yet", style="dim")
        elif self.has_changed and self.before is not None:
            was = self.before.text if self.before.is_known else "?"
            line.append(f"{clean(was)} → ", style="dim")
            line.append(clean(self.now.text), style="bold reverse" if self.now.is_known else "dim")
        else:
            line.append(clean(self.now.text), style="bold" if self.now.is_known else "dim")
        return line


class LiveWatches:
    """The expressions that are watched, and the lines that show them.

    Args:
        program: in which they have values.
        board: of the screen.
        kept: the file in which they are kept.
    """

    def __init__(self, program: LiveProgram, board: Board, kept: BreakpointFile) -> None:
        self._program = program
        self._board = board
        self._kept = kept
        self.lines = Static("", id="watches", markup=False)
        self._watched: list[_Watched] = []
        self._next_number = 1

    def load(self) -> None:
        """Watch what the file has, which was loaded, and say so."""
        for each in self._kept.watches[:MOST]:
            self._append(each)
        if self._watched:
            what = plural(len(self._watched), "expression")
            self._board.notify(f"{what} of {PLACE} watched again; :watch and :display list them.")
        self.show()

    # Commands.

    def add(self, argument: str, *, is_printed: bool) -> None:
        """Watch an expression from now on; without one, list those there are."""
        if not argument:
            self._list(is_printed=is_printed)
            return
        if len(self._watched) >= MOST:
            raise CommandError(f"There are {MOST} already; :unwatch N removes one.")
        try:
            wanted = WatchedExpression(argument, is_printed)
        except AgvizError as error:
            raise CommandError(f"{clean(str(error))}. Python runs in the shell: !") from None
        made = self._append(wanted)
        self._save()
        self.show()
        self._ask([made])

    def remove(self, argument: str, *, is_printed: bool) -> None:
        """Watch one no longer, or without a number none."""
        there = self._of(is_printed=is_printed)
        if argument:
            number = command_line.number(argument, -1)
            there = [each for each in there if each.number == number]
            if not there:
                raise CommandError(f"There is no such expression {argument}.")
        self._watched = [each for each in self._watched if each not in there]
        self._save()
        self.show()

    def complete(self, argument: str) -> Iterable[str]:
        """What is often asked of the parameters of this pass."""
        names = self._board.shown.recording.columns.parameters("")
        known = [f"{name}{tail}" for name in names for tail in _TAILS]
        return [each for each in known if each.startswith(argument)]

    def _list(self, *, is_printed: bool) -> None:
        lines = [each.line(_WIDEST).plain for each in self._of(is_printed=is_printed)]
        verb = "display" if is_printed else "watch"
        nothing = f"nothing yet; write :{verb} fc.weight.grad.norm()"
        self._program.answer("\n".join(lines) or nothing)

    # Stops.

    def look(self) -> None:
        """Ask for the values at the stop that is looked at; print those that are to be printed."""
        self._ask(self._watched)

    def _ask(self, several: list[_Watched]) -> None:
        stop = self._program.stop
        if stop is None or not several:
            return
        asked = list(several)
        texts = [each.expression.text for each in asked]

        def take(values: tuple[ExpressionValue, ...]) -> None:
            for each, value in zip(asked, values, strict=False):
                each.take(value)
                if each.expression.is_printed:
                    self._program.output.add(
                        f"{each.number}: {each.expression.text} = {clean(value.text)}\n", ANSWER
                    )
            self.show()

        self._program.ask_quietly(lambda client: client.values(*texts, thread=stop.thread), take)

    # Showing.

    def show(self) -> None:
        """Draw the lines that have room."""
        watched = self._of(is_printed=False)
        self.lines.set_class(bool(watched), "-watches")
        self.lines.set_class(self._program.stop is None, "-running")
        if not watched:
            return
        room = max(2, self._board.screen.size.height // _LINES_PER_WATCH)
        shown = watched if len(watched) <= room else watched[: room - 1]
        width = min(_WIDEST, max(len(each.expression.text) for each in shown))
        lines = [each.line(width) for each in shown]
        if len(shown) < len(watched):
            lines.append(Text(f"   and {len(watched) - len(shown)} more: :watch lists them", "dim"))
        self.lines.update(Text("\n").join(lines))

    def _of(self, *, is_printed: bool) -> list[_Watched]:
        return [each for each in self._watched if each.expression.is_printed is is_printed]

    def _append(self, wanted: WatchedExpression) -> _Watched:
        made = _Watched(self._next_number, wanted)
        self._next_number += 1
        self._watched.append(made)
        return made

    def _save(self) -> None:
        try:
            self._kept.save_watches([each.expression for each in self._watched])
        except AgvizError as error:
            self._board.screen.notify(clean(str(error)), severity="warning", markup=False)
