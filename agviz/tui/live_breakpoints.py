"""Where a program that runs is to stop: its breakpoints, and the file that keeps them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from agviz.debugger.breakpoint_file import PLACE, BreakpointFile
from agviz.debugger.breakpoints import Breakpoint, log_words, parse
from agviz.debugger.messages import NONFINITE
from agviz.errors import AgvizError
from agviz.tui import command_line
from agviz.tui.command_line import CommandError
from agviz.tui.marking import find_marks, mark_of
from agviz.tui.screens.breakpoints import WITHOUT_LINES, Breakpoints
from agviz.words.safe import clean
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agviz.debugger.client import Client
    from agviz.debugger.messages import Stops
    from agviz.tui.board import Board
    from agviz.tui.marking import Marked
    from agviz.tui.program import LiveProgram

_MOST_SAID: Final = 4


class LiveBreakpoints:
    """The breakpoints of the program.

    Args:
        program: which is to stop.
        board: of the screen that shows its trace.
        kept: the file in which they are kept.
    """

    def __init__(self, program: LiveProgram, board: Board, kept: BreakpointFile) -> None:
        self._program = program
        self._board = board
        self._kept = kept
        self.known: list[Breakpoint] = []

    def load(self) -> None:
        """Have those of the program, and say so."""
        try:
            kept = self._kept.load()
        except AgvizError as error:
            self._warn(clean(str(error)), timeout=20)
            return
        for each in kept:
            self._program.ask(_adding(each))
        self.ask()
        unclaimed = self._kept.unclaimed
        own = kept[: len(kept) - len(unclaimed)]
        said = []
        if own:
            said.append(f"{plural(len(own), 'breakpoint')} loaded from {PLACE}: {_listed(own)}.")
        if unclaimed:
            are, them = ("is", "it") if len(unclaimed) == 1 else ("are", "them")
            said.append(
                f"{plural(len(unclaimed), 'breakpoint')} in {PLACE} may be of another program and"
                f" {are} off until you switch {them} on (B): {_listed(unclaimed)}."
            )
        if said:
            self._board.screen.notify(clean(" ".join(said)), timeout=20, markup=False)

    def ask(self) -> None:
        """Learn of their hits, and whether there are still all."""
        self._program.ask(lambda client: client.breakpoints(), self._learn)

    def find_marks(self) -> None:
        """Look which nodes of the graph task that is loaded have breakpoints."""
        self._board.reader.ask(find_marks(self.known), self._show_marks)

    def _show_marks(self, found: Marked) -> None:
        self._program.marked, self._program.marks = found.key, found.marks
        self._program.show()

    def toggle(self, line: str) -> None:
        """Stop before the selected node from now on, or no longer.

        Args:
            line: where to stop instead, like ``train.py:12``; empty: nowhere else.
        """
        wanted = Breakpoint(line=line) if line else self._here()
        if wanted is None:
            self._board.notify("Choose a node first: put the cursor on it.")
            return
        same = [each for each in self.known if each.describe() == wanted.describe()]
        if same:
            self._change("remove", same[0])
        else:
            self._change("add", wanted)

    def edit(self) -> None:
        """Open the list of breakpoints."""
        self._board.screen.app.push_screen(
            Breakpoints(self.known, self._change, knows_lines=self._program.knows_lines)
        )

    def add(self, argument: str, *, temporary: bool = False) -> None:
        """Stop where the argument says, or before the selected node."""
        self._change("add", self._written(argument).changed(temporary=temporary))

    def add_log(self, argument: str) -> None:
        """Print a text where the first words say, and do not stop."""
        where, text = log_words(argument)
        if not where or not text:
            raise CommandError("Say where and what to print, like parameter=fc.weight norm {norm}.")
        self._change("add", self._written(f"{where} log {text}"))

    def condition(self, argument: str) -> None:
        """Have a breakpoint ask for more."""
        number, _, condition = argument.partition(" ")
        self._edit(number, condition=condition.strip())

    def ignore(self, argument: str) -> None:
        """Have a breakpoint not stop so many times."""
        number, _, times = argument.partition(" ")
        self._edit(number, ignore_count=command_line.number(times.strip(), 0), hits=0)

    def enable(self, argument: str, *, on: bool) -> None:
        """Switch a breakpoint on or off."""
        self._edit(argument, enabled=on)

    def delete(self, argument: str) -> None:
        """Remove a breakpoint."""
        self._change("remove", self._numbered(argument))

    def set_stops(self, argument: str) -> None:
        """Choose where else to stop."""
        what, _, how = argument.partition(" ")
        wanted: dict[str, Any] = {}
        if what == "nonfinite" and how in NONFINITE:
            wanted = {"nonfinite": how}
        elif what in {"exceptions", "first"} and how in {"on", "off"}:
            wanted = {what: how == "on"}
        elif what:
            raise CommandError("Say exceptions on|off, first on|off, or nonfinite first|every|off.")
        self._program.ask(lambda client: client.set_stops(**wanted), self._say_stops)

    def _say_stops(self, found: Stops) -> None:
        on = {True: "on", False: "off"}
        self._program.answer(
            f"exceptions {on[found.exceptions]}, nonfinite {found.nonfinite},"
            f" first {on[found.first]}; a stop holds {found.hold}"
        )

    def _change(self, what: str, wanted: Breakpoint) -> None:
        """Make, change or remove a breakpoint, in the program and in the file."""
        if what == "add":
            self._program.ask(_adding(wanted), self._say_added)
        elif what == "remove":
            self._program.ask(
                lambda client: client.remove_breakpoint(wanted.number), self._say_removed
            )
        else:
            wanted_fields = wanted.to_json()
            blank = dict.fromkeys(("sequence_nr", "node", "device", "hit_count"))
            texts = ("name", "module", "parameter", "line", "event", "condition", "when", "log")
            empty = dict.fromkeys(texts, "")
            changes: dict[str, Any] = (
                blank | empty | {"ignore_count": 0, "enabled": True} | wanted_fields
            )
            changes.pop("number", None)
            self._program.ask(lambda client: client.edit_breakpoint(wanted.number, **changes))
        self._program.ask(lambda client: client.breakpoints(), self._keep)

    def _edit(self, number: str, **changes: Any) -> None:
        known = self._numbered(number)
        self._program.ask(lambda client: client.edit_breakpoint(known.number, **changes))
        self._program.ask(lambda client: client.breakpoints(), self._keep)

    def _learn(self, found: list[Breakpoint]) -> None:
        before, self.known = self.known, found
        if [each.changed(hits=0) for each in before] != [each.changed(hits=0) for each in found]:
            self._program.line_marks = {each.line: mark_of(each) for each in found if each.line}
            self._program.show()
            self.find_marks()
        screen = self._board.screen.app.screen
        if isinstance(screen, Breakpoints):
            screen.show(found)

    def _keep(self, found: list[Breakpoint]) -> None:
        self._learn(found)
        try:
            self._kept.save(found)
        except AgvizError as error:
            self._warn(clean(str(error)))

    def _say_added(self, made: Breakpoint) -> None:
        what = "Log point" if made.log else "Breakpoint"
        said = f"{what} {made.number}: {clean(made.describe())}"
        if made.line and not self._program.knows_lines:
            never = f"{said}\nIt will never stop: {WITHOUT_LINES}."
            self._warn(never, timeout=20)
        else:
            self._board.notify(said)

    def _say_removed(self, gone: Breakpoint) -> None:
        self._board.notify(f"Breakpoint {gone.number} is removed.")

    def _warn(self, sentence: str, *, timeout: float | None = None) -> None:
        self._board.screen.notify(sentence, severity="warning", timeout=timeout, markup=False)

    def _numbered(self, argument: str) -> Breakpoint:
        number = command_line.number(argument.strip(), -1)
        for each in self.known:
            if each.number == number:
                return each
        there = ", ".join(str(each.number) for each in self.known) or "none"
        raise CommandError(f"There is no breakpoint {argument}; there are: {there}.")

    def _written(self, argument: str) -> Breakpoint:
        if argument:
            try:
                return parse(argument)
            except AgvizError as error:
                raise CommandError(clean(str(error))) from None
        wanted = self._here()
        if wanted is None:
            raise CommandError("Choose a node first: put the cursor on it.")
        return wanted

    def _here(self) -> Breakpoint | None:
        """A breakpoint before the selected node, and its like in other backward passes."""
        view = self._board.view
        if view is None or view.selected is None:
            return None
        facts = view.recording.columns.facts(view.selected)
        if facts.parameter:
            return Breakpoint(parameter=facts.parameter)
        return Breakpoint(node=view.selected, name=f"{re.escape(facts.short_name)}$")


def _listed(breakpoints: Sequence[Breakpoint]) -> str:
    """The first few, as they are written."""
    shown = [
        each.describe() if each.enabled else f"{each.describe()} (off)"
        for each in breakpoints[:_MOST_SAID]
    ]
    more = len(breakpoints) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


def _adding(wanted: Breakpoint) -> Callable[[Client], Breakpoint]:
    return lambda client: client.add_breakpoint(wanted)
