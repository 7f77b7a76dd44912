"""Breaking: the keys and commands for breakpoints of a program that runs."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual.binding import Binding, BindingType

from agviz.debugger.breakpoint_file import PLACE, BreakpointFile
from agviz.debugger.breakpoints import Breakpoint, parse
from agviz.debugger.stops import NONFINITE
from agviz.errors import AgvizError
from agviz.tui import commands
from agviz.tui.commands import CommandError, Usage
from agviz.tui.linked import Linked
from agviz.tui.marking import find_marks
from agviz.tui.screens.breakpoints import WITHOUT_LINES, Breakpoints
from agviz.words.safe import clean
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from agviz.debugger.client import Client, Stops
    from agviz.debugger.launch import Debuggee
    from agviz.tui.marking import Marked
    from agviz.tui.reader_thread import ReaderThread

_MOST_SAID: Final = 4


class Breaking(Linked):
    """Where the program is to stop.

    Args:
        paths: its trace file.
        reader: the thread that reads it.
        client: speaks with the program.
        debuggee: the program, where it was started from here.
        folder: of the project, whose breakpoints are kept.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("b", "toggle_breakpoint", "Break", tooltip="Breakpoint here", id="break.toggle"),
        Binding("B", "edit_breakpoints", "Breakpoints", show=False, id="break.edit"),
    ]

    VERBS: ClassVar[Mapping[str, Usage]] = {
        "break": Usage("[WHERE]", "stop there, or before the selected node"),
        "tbreak": Usage("[WHERE]", "the same, once"),
        "breakpoints": Usage("", "list and edit breakpoints"),
        "condition": Usage("N [CONDITION]", "let breakpoint N ask for more, like norm > 1e3"),
        "ignore": Usage("N COUNT", "let breakpoint N not stop so many times"),
        "enable": Usage("N", "switch breakpoint N on"),
        "disable": Usage("N", "switch breakpoint N off"),
        "delete": Usage("N", "remove breakpoint N"),
        "stops": Usage("[exceptions|nonfinite|first WHAT]", "where else to stop: on, off, every"),
    }

    def __init__(
        self,
        paths: Sequence[Path],
        reader: ReaderThread,
        *,
        client: Client,
        debuggee: Debuggee | None,
        folder: Path,
    ) -> None:
        super().__init__(paths, reader, client=client, debuggee=debuggee)
        self._kept = BreakpointFile(folder, client.hello.program)
        self._known: list[Breakpoint] = []

    def load_breakpoints(self) -> None:
        """Have those of the program, and say so."""
        try:
            kept = self._kept.load()
        except AgvizError as error:
            self.notify(clean(str(error)), severity="warning", timeout=20, markup=False)
            return
        for each in kept:
            self.ask_program(partial(_add, wanted=each))
        self.ask_breakpoints()
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
            self.notify(clean(" ".join(said)), timeout=20, markup=False)

    def ask_breakpoints(self) -> None:
        """Learn of their hits, and whether there are still all."""
        self.ask_program(lambda client: client.breakpoints(), self._learn)

    def find_marks(self) -> None:
        """Look which nodes of the graph task that is loaded have breakpoints."""
        self.reader.ask(find_marks(self._known))

    def on_marked(self, message: Marked) -> None:
        """Show them."""
        self.marked, self.marks = message.key, message.marks
        self.show_alive()

    def action_toggle_breakpoint(self) -> None:
        """Stop before the selected node from now on, or no longer."""
        wanted = self._here()
        if wanted is None:
            self.notify("Choose a node first: put the cursor on it.")
            return
        same = [each for each in self._known if each.describe() == wanted.describe()]
        if same:
            self._change("remove", same[0])
        else:
            self._change("add", wanted)

    def action_edit_breakpoints(self) -> None:
        """Open the list of breakpoints."""
        self.app.push_screen(Breakpoints(self._known, self._change, knows_lines=self.knows_lines))

    def command_break(self, argument: str) -> None:
        """``:break``."""
        self._change("add", self._written(argument))

    def command_tbreak(self, argument: str) -> None:
        """``:tbreak``."""
        self._change("add", self._written(argument).changed(temporary=True))

    def command_breakpoints(self, _argument: str) -> None:
        """``:breakpoints``."""
        self.action_edit_breakpoints()

    def command_condition(self, argument: str) -> None:
        """``:condition``."""
        number, _, condition = argument.partition(" ")
        self._edit(number, condition=condition.strip())

    def command_ignore(self, argument: str) -> None:
        """``:ignore``."""
        number, _, times = argument.partition(" ")
        self._edit(number, ignore_count=commands.number(times.strip(), 0), hits=0)

    def command_enable(self, argument: str) -> None:
        """``:enable``."""
        self._edit(argument, enabled=True)

    def command_disable(self, argument: str) -> None:
        """``:disable``."""
        self._edit(argument, enabled=False)

    def command_delete(self, argument: str) -> None:
        """``:delete``."""
        self._change("remove", self._numbered(argument))

    def command_stops(self, argument: str) -> None:
        """``:stops``."""
        what, _, how = argument.partition(" ")
        wanted: dict[str, Any] = {}
        if what == "nonfinite" and how in NONFINITE:
            wanted = {"nonfinite": how}
        elif what in {"exceptions", "first"} and how in {"on", "off"}:
            wanted = {what: how == "on"}
        elif what:
            raise CommandError("Say exceptions on|off, first on|off, or nonfinite first|every|off.")
        self.ask_program(lambda client: client.set_stops(**wanted), self._say_stops)

    def _say_stops(self, found: Stops) -> None:
        on = {True: "on", False: "off"}
        self.answer(
            f"exceptions {on[found.exceptions]}, nonfinite {found.nonfinite},"
            f" first {on[found.first]}; a stop holds {found.hold}"
        )

    def _change(self, what: str, wanted: Breakpoint) -> None:
        """Make, change or remove a breakpoint, in the program and in the file."""
        if what == "add":
            self.ask_program(partial(_add, wanted=wanted), self._say_added)
        elif what == "remove":
            self.ask_program(
                lambda client: client.remove_breakpoint(wanted.number), self._say_removed
            )
        else:
            wanted_fields = wanted.to_json()
            blank = dict.fromkeys(("sequence_nr", "node", "device", "hit_count"))
            empty = dict.fromkeys(("name", "module", "parameter", "line", "event", "condition"), "")
            changes: dict[str, Any] = (
                blank | empty | {"ignore_count": 0, "enabled": True} | wanted_fields
            )
            changes.pop("number", None)
            self.ask_program(lambda client: client.edit_breakpoint(wanted.number, **changes))
        self.ask_program(lambda client: client.breakpoints(), self._keep)

    def _edit(self, number: str, **changes: Any) -> None:
        known = self._numbered(number)
        self.ask_program(lambda client: client.edit_breakpoint(known.number, **changes))
        self.ask_program(lambda client: client.breakpoints(), self._keep)

    def _learn(self, found: list[Breakpoint]) -> None:
        before, self._known = self._known, found
        if [each.changed(hits=0) for each in before] != [each.changed(hits=0) for each in found]:
            self.find_marks()
        if isinstance(self.app.screen, Breakpoints):
            self.app.screen.show(found)

    def _keep(self, found: list[Breakpoint]) -> None:
        self._learn(found)
        try:
            self._kept.save(found)
        except AgvizError as error:
            self.notify(clean(str(error)), severity="warning", markup=False)

    def _say_added(self, made: Breakpoint) -> None:
        said = f"Breakpoint {made.number}: {clean(made.describe())}"
        if made.line and not self.knows_lines:
            never = f"{said}\nIt will never stop: {WITHOUT_LINES}."
            self.notify(never, severity="warning", timeout=20, markup=False)
        else:
            self.notify(said, markup=False)

    def _say_removed(self, gone: Breakpoint) -> None:
        self.notify(f"Breakpoint {gone.number} is removed.")

    def _numbered(self, argument: str) -> Breakpoint:
        number = commands.number(argument.strip(), -1)
        for each in self._known:
            if each.number == number:
                return each
        there = ", ".join(str(each.number) for each in self._known) or "none"
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
        view = self.view
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


def _add(client: Client, wanted: Breakpoint) -> Breakpoint:
    return client.add_breakpoint(wanted)
