"""The session on a program that is being debugged.

Where the playhead stands at the moment at which the program stands, a key that goes forward has the
program run; anywhere before it, it moves the playhead as in any recording. So one can look at what
was, and come back to now.
"""

from __future__ import annotations

import re
import subprocess
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Static

from agviz.debugger.breakpoint_file import BreakpointFile
from agviz.debugger.breakpoints import Breakpoint, parse
from agviz.debugger.client import Stopped
from agviz.debugger.stops import HOLDS, NONFINITE
from agviz.errors import AgvizError
from agviz.traces.nodes import short_name
from agviz.traces.text import clean
from agviz.tui import commands
from agviz.tui.app import AgvizApp
from agviz.tui.arranging import PANELS
from agviz.tui.commands import CommandError, Usage
from agviz.tui.link import Ear, Link
from agviz.tui.model import Key, Playhead
from agviz.tui.panels.output import ANSWER, INPUT, STDERR, STDOUT, Output
from agviz.tui.prompt import SHELL, Prompt
from agviz.tui.screens.breakpoints import Breakpoints
from agviz.tui.screens.leave import Leave
from agviz.tui.session import Session
from agviz.tui.settings import Settings
from agviz.tui.text import count

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path, PurePath

    from textual.app import ComposeResult

    from agviz.debugger.client import Client, Shown, TensorAtHand
    from agviz.debugger.launch import Debuggee
    from agviz.debugger.stops import How
    from agviz.tui.link import Heard, Refused, Told
    from agviz.tui.model import View
    from agviz.tui.panels.panel import Panel
    from agviz.tui.reader_thread import Arrived, Listed, Move, ReaderThread
    from agviz.tui.screens.leave import Choice

_SECONDS_BETWEEN_LOOKS: Final = 0.1
_OUTPUT_LINES: Final = 7
_MOST_AHEAD: Final = 20
_WAITING: Final = "The program has not called backward yet."


@dataclass
class Moved(Message):
    """A move of the playhead is done."""

    number: int


class LiveSession(Session):
    """A session with a program behind it.

    Args:
        paths: its trace file.
        reader: the thread that reads it.
        client: speaks with the program.
        debuggee: the program, where it was started from here.
        folder: of the project, whose breakpoints are kept.
    """

    PANELS: ClassVar[tuple[type[Panel], ...]] = (*PANELS, Output)

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("b", "toggle_breakpoint", "Break", tooltip="Breakpoint here", id="break.toggle"),
        Binding("B", "edit_breakpoints", "Breakpoints", show=False, id="break.edit"),
        Binding("o", "hook", "Hook", tooltip="Step over a hook", show=False, id="live.hook"),
        Binding("exclamation_mark", "shell", "Python", priority=True, id="shell"),
        Binding("ctrl+c", "pause", "Pause", priority=True, id="live.pause"),
        Binding(
            str(len(PANELS) + 1),
            "show_panel('output')",
            "Output panel",
            show=False,
            id="panel.output",
        ),
        Binding("ctrl+z", "app.suspend_process", "Suspend", show=False, id="suspend"),
        Binding("q", "leave", "Quit", id="quit"),
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
        "hold": Usage("all|one", "whether a stop holds all threads or its own"),
        "hook": Usage("", "run past the node's next hook"),
        "pause": Usage("", "stop at the next event"),
        "now": Usage("", "go to the moment at which the program stands"),
        "tensors": Usage("", "list the tensors at this stop"),
        "print": Usage("WHAT [NAME] [INDEX]", "show a tensor: input 0 [0:3]"),
        "change": Usage("SLOT HOW VALUE [INDEX]", "change a gradient: 0 multiply 2, 0 set 1 [3]"),
        "skiphooks": Usage("", "leave out the node's hooks"),
        "pick": Usage("NODE", "run a ready node right after this one"),
        "python": Usage("LINE", "run a line of Python at this node"),
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
        super().__init__(paths, reader)
        self.link = Link(client, self.post_message)
        self._ear = Ear(client, self.post_message)
        self._debuggee = debuggee
        self._kept = BreakpointFile(folder)
        self._known: list[Breakpoint] = []
        self.stop: Stopped | None = None
        """Where the program stands; None: it runs, or has ended."""
        self._is_over = False
        self._asked = self._moved = 0
        """Moves of the playhead that were asked for, and those of them that are done."""
        self._wants_now = False
        """Whether the last of them goes to now."""
        self._runs_python = False
        self._is_stepping = False
        self._ahead: deque[How] = deque(maxlen=_MOST_AHEAD)
        """Steps that were typed while the one before was under way."""

    def compose(self) -> ComposeResult:
        """What any session has, and a line that says how the program stands."""
        yield from super().compose()
        yield Static("", id="live", markup=False)

    def on_mount(self) -> None:
        """Stop where a program that is debugged stops unless told otherwise."""
        self.move_child(self.query_one("#live"), before=self.query_one("#status"))
        self.link.start()
        self._ear.start()
        self._load_breakpoints()
        first = self._debuggee is not None
        self._ask(
            lambda client: client.set_stops(first=first, exceptions=True, nonfinite="first"),
            _nothing,
        )
        if self._debuggee is None:
            self._ask(lambda client: client.pause(), _nothing)
        self.set_interval(_SECONDS_BETWEEN_LOOKS, self._look_at_output)
        self._show_stand()

    # What the program says.

    def on_heard(self, message: Heard) -> None:
        """It has stopped, or runs, or has ended."""
        notice = message.notice
        self._is_stepping = False
        if isinstance(notice, Stopped):
            self.stop = notice
            self.reader.poll()
            self._go_to_now()
            if notice.reasons == ("step",) and self._ahead:
                self._step(self._ahead.popleft())
                return
            self._ahead.clear()
            self._ask(lambda client: client.breakpoints(), self._learn)
            if "exception" in notice.reasons:
                error, text = notice.details.get("error"), notice.details.get("message")
                self._answer(f"{error}: {text}")
        elif notice.what in {"ended", "gone"}:
            self._is_over = True
            self.stop = None
            self.reader.poll()
            if notice.why:
                self.notify(notice.why, severity="error", markup=False)
        elif self.stop is not None and notice.thread == self.stop.thread:
            self.stop = None
        self._show_stand()

    def on_told(self, message: Told) -> None:
        """A question was answered."""
        message.then(message.answer)

    def on_refused(self, message: Refused) -> None:
        """It could not be."""
        self._runs_python = False
        if not self._is_over:
            self.notify(message.sentence, severity="warning", markup=False)

    def on_listed(self, message: Listed) -> None:
        """Open the newest graph task where none is open."""
        message.prevent_default()
        self.tasks = message.tasks
        rows = message.tasks[0]
        if self.stop is not None:
            self._go_to_now()
        elif rows and self.view is None:
            self.reader.load(Key(0, rows[-1].id))
            self.reader.move(Playhead.to_end)
        elif not rows:
            self._show_stand()

    def on_arrived(self, message: Arrived) -> None:
        """Show another moment; the end is no end while the program goes on."""
        message.moved = message.moved or not self._is_over

    # Keys.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Some keys do something before there is anything to show."""
        if action == "pause" and self._runs_python:
            return True
        if action in {"pause", "leave", "edit_breakpoints"}:
            return not self.query_one(Prompt).has_class("-open")
        return super().check_action(action, parameters)

    def action_node(self, by: int) -> None:
        """Run to the next node, or go there or back in what was."""
        if by == 1 and self._steps("node"):
            return
        super().action_node(by)

    def action_event(self, by: int) -> None:
        """Run to the next event, or go there or back in what was."""
        if by == 1 and self._steps("event"):
            return
        super().action_event(by)

    def action_hook(self) -> None:
        """Run past the node's next hook."""
        if not self._steps("hook"):
            self.notify("Go to now first: press c.")

    def action_stop(self, by: int) -> None:
        """Run on, or go to the next or previous finding in what was."""
        if by < 0 or not self._is_now:
            super().action_stop(by)
        elif self.stop is not None:
            self._run(lambda client: client.go_on())

    def action_until(self) -> None:
        """Run to the selected node, or go to where it ran."""
        view, stop = self.view, self.stop
        if view is None or view.selected is None or stop is None:
            super().action_until()
            return
        node, key = view.selected, view.recording.key
        ran = view.recording.columns.execution_of(node) is not None
        if ran or key.graph_task != stop.graph_task:
            super().action_until()
        else:
            self._run(lambda client: client.until(stop.graph_task, node))

    def action_pause(self) -> None:
        """Stop at the next event."""
        if self._is_over:
            self.notify("The program has ended.")
        elif self._runs_python:
            self.link.interrupt()
        elif self.stop is not None:
            self.notify("The program stands already.")
        else:
            self.notify("Pausing at the next event.", timeout=2)
            self._ask(lambda client: client.pause(), _nothing)

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
        self.app.push_screen(Breakpoints(self._known, self._change))

    def action_shell(self) -> None:
        """Open a line for Python at the stopped node."""
        if self._is_stopped():
            self.action_ask(SHELL)

    def on_prompt_answered(self, message: Prompt.Answered) -> None:
        """Run a line of Python; what else is typed is not ours."""
        if message.kind == SHELL:
            message.prevent_default()
            self.command_python(message.text)
            self.call_after_refresh(self.action_shell)

    def action_leave(self) -> None:
        """Leave, after asking where the program would be lost."""
        if self._is_over:
            self.app.exit()
        else:
            self.app.push_screen(Leave(can_end=self._debuggee is not None), self._leave)

    # Commands.

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
        self._ask(lambda client: client.set_stops(**wanted), lambda found: self._answer(str(found)))

    def command_hold(self, argument: str) -> None:
        """``:hold``."""
        if argument not in HOLDS:
            raise CommandError("A stop holds all threads, or one.")
        hold: Any = argument
        self._ask(lambda client: client.set_stops(hold=hold), _nothing)

    def command_hook(self, _argument: str) -> None:
        """``:hook``."""
        self.action_hook()

    def command_pause(self, _argument: str) -> None:
        """``:pause``."""
        self.action_pause()

    def command_now(self, _argument: str) -> None:
        """``:now``."""
        if self._is_stopped():
            self._go_to_now()

    def command_tensors(self, _argument: str) -> None:
        """``:tensors``."""
        self._ask_thread(lambda client, thread: client.tensors(thread), self._list_tensors)

    def command_print(self, argument: str) -> None:
        """``:print``."""
        match = re.fullmatch(r"(\w+)(?:\s+([^\[\s]\S*))?(?:\s*(\[.*\]))?", argument)
        if match is None:
            raise CommandError("Say what to print, like input 0 [0:3]; :tensors lists all.")
        what, name, index = match[1], match[2] or "", match[3] or ""
        if what in {"input", "output"} and not name:
            name = "0"
        self._ask_thread(
            lambda client, thread: client.tensor(what, name, index, thread), self._print
        )

    def command_change(self, argument: str) -> None:
        """``:change``."""
        match = re.fullmatch(r"(\d+)\s+(\w+)\s+(\S+)(?:\s*(\[.*\]))?", argument)
        if match is None:
            raise CommandError("Say slot, how and value, like 0 multiply 2 or 0 set 1 [3].")
        slot, how, value, index = int(match[1]), match[2], match[3], match[4] or ""
        self._ask_thread(
            lambda client, thread: client.change(slot, how, value, index, thread),
            lambda health: self._answer(f"input {slot} is now {_health(health)}"),
        )

    def command_skiphooks(self, _argument: str) -> None:
        """``:skiphooks``."""
        self._ask_thread(
            lambda client, thread: client.skip_hooks(thread),
            lambda _: self.notify("The node's Python hooks are left out this time."),
        )

    def command_pick(self, argument: str) -> None:
        """``:pick``."""
        if self.view is None:
            return
        found = self.view.recording.columns.find(argument)
        node = int(argument) if argument.isdecimal() else next(iter(found), -1)
        self._ask_thread(
            lambda client, thread: client.run_next(node, thread),
            lambda _: self.notify(f"Node {node} runs right after this one."),
        )

    def command_python(self, argument: str) -> None:
        """``:python``."""
        if not self._is_stopped():
            return
        self.output.add(f"{argument}\n", INPUT)
        self._show_output()
        self._runs_python = True
        self._ask_thread(lambda client, thread: client.shell(argument, thread), self._say_output)

    def _say_output(self, answer: tuple[str, bool]) -> None:
        output, more = answer
        self._runs_python = False
        self.output.add(output or ("…\n" if more else ""), ANSWER)

    def command_quit(self, _argument: str) -> None:
        """``:quit``."""
        self.action_leave()

    # What they need.

    @property
    def output(self) -> Output:
        """What the program prints."""
        return self.query_one(Output)

    def share_room(self) -> None:
        """Give the output some lines at the bottom."""
        super().share_room()
        rows = self.query_one("#panels").styles.grid_rows
        if rows and len(rows) == 3:
            self.query_one("#panels").styles.grid_rows = (
                " ".join(str(row) for row in rows) + f" {_OUTPUT_LINES}"
            )

    def move(self, move: Move) -> None:
        """Ask for another moment, and know when it is reached."""
        super().move(move)
        self._wants_now = False
        self._mark()

    def _mark(self) -> None:
        self._asked += 1
        number = self._asked
        self.reader.ask(lambda _trace, _recording: Moved(number))

    def on_moved(self, message: Moved) -> None:
        """The playhead is where it was asked to be."""
        self._moved = message.number
        self._show_stand()

    @property
    def _is_now(self) -> bool:
        if self._moved != self._asked:
            return self._wants_now and self.stop is not None
        view, stop = self.view, self.stop
        if view is None or stop is None or view.recording.key.graph_task != stop.graph_task:
            return False
        return view.moment.event is not None and view.moment.event.seq >= stop.seq

    def _is_stopped(self) -> bool:
        if self.stop is None:
            over = "has ended" if self._is_over else "runs; ctrl+c pauses it"
            self.notify(f"The program {over}.")
        return self.stop is not None

    def _steps(self, how: How) -> bool:
        """Have the program run a step, where the playhead is at now."""
        if self._is_stepping:
            self._ahead.append(how)
            return True
        if not self._is_now:
            return False
        self._step(how)
        return True

    def _step(self, how: How) -> None:
        thread = self.view.thread if self.view else None
        self._run(lambda client: client.step(how, thread))
        self._is_stepping = True

    def _run(self, command: Callable[[Client], None]) -> None:
        self.stop = None
        self._is_stepping = False
        self._show_stand()
        self._ask(command, _nothing)
        self.reader.follow(on=True)

    def _go_to_now(self) -> None:
        stop = self.stop
        if stop is None or not any(row.id == stop.graph_task for row in self.tasks[0]):
            return  # the reader lists it soon
        key = Key(0, stop.graph_task)
        if self.view is None or self.view.recording.key != key:
            self.reader.load(key)
        self.reader.move(partial(Playhead.to_seq, seq=stop.seq))
        self._wants_now = True
        self._mark()

    def watch_view(self, view: View | None) -> None:
        """Draw everything anew, and say whether this is now."""
        super().watch_view(view)
        self._show_stand()

    def _show_stand(self) -> None:
        line = self.query_one("#live", Static)
        stand = self._stand()
        line.update(stand)
        line.set_class(self.stop is not None, "-stopped")
        if self.view is None:
            lines = "\n".join(self.output.last_lines)
            self.say(f"{stand}\n\n{_WAITING if not self._is_over else ''}\n\n{lines}")

    def _stand(self) -> str:
        stop = self.stop
        if self._is_over:
            code = None if self._debuggee is None else self._debuggee.process.poll()
            return "✗ The program has ended" + ("" if code is None else f" with exit code {code}")
        if stop is None:
            return "● The program runs"
        before = "before" if stop.is_before_a_node else f"at {stop.event} of"
        what = f"{before} {short_name(stop.name)}" if stop.name else f"at {stop.event}"
        numbers = ", ".join(str(number) for number in stop.breakpoints)
        why = " and ".join(stop.reasons).replace("breakpoint", f"breakpoint {numbers}")
        when = "now" if self._is_now or self.view is None else "you look at the past, c goes on"
        place = stop.parameter or stop.module
        facts = [f"■ T{stop.thread} {what}", place, why, stop.line, when]
        return " · ".join(fact for fact in facts if fact)

    def _look_at_output(self) -> None:
        if self._debuggee is None:
            return
        came = False
        for stream, look in ((self._debuggee.stdout, STDOUT), (self._debuggee.stderr, STDERR)):
            found = stream.read()
            if found:
                came = True
                self.output.add_bytes(found, look)
        if (came and self.view is None) or self._is_over:
            self._show_stand()

    def _ask(self, question: Callable[[Client], Any], then: Callable[[Any], None]) -> None:
        self.link.ask(question, then)

    def _ask_thread(
        self, question: Callable[[Client, int], Any], then: Callable[[Any], None]
    ) -> None:
        """Ask something of the stopped thread."""
        if self._is_stopped() and self.stop is not None:
            thread = self.stop.thread
            self._ask(lambda client: question(client, thread), then)

    def _answer(self, text: str) -> None:
        self.output.add(f"{text}\n", ANSWER)
        self._show_output()

    def _show_output(self) -> None:
        if self.has_class("-narrow") or self.has_class("-low"):
            self.action_show_panel("output")

    def _list_tensors(self, found: list[TensorAtHand]) -> None:
        for each in found:
            self._answer(f"{each.what} {each.name}".rstrip() + f"  {_health(each.health)}")

    def _print(self, shown: Shown) -> None:
        self._answer(f"{shown.text}\n{_health(shown.health)}")

    # Breakpoints.

    def _load_breakpoints(self) -> None:
        try:
            kept = self._kept.load()
        except AgvizError as error:
            self.notify(clean(str(error)), severity="warning", timeout=20, markup=False)
            return
        for each in kept:
            self._ask(partial(_add, wanted=each), _nothing)
        self._ask(lambda client: client.breakpoints(), self._learn)

    def _change(self, what: str, wanted: Breakpoint) -> None:
        """Make, change or remove a breakpoint, in the program and in the file."""
        if what == "add":
            self._ask(partial(_add, wanted=wanted), self._say_added)
        elif what == "remove":
            self._ask(lambda client: client.remove_breakpoint(wanted.number), self._say_removed)
        else:
            told = wanted.to_json()
            blank = dict.fromkeys(("sequence_nr", "node", "device", "hit_count"))
            empty = dict.fromkeys(("name", "module", "parameter", "line", "event", "condition"), "")
            changes: dict[str, Any] = blank | empty | {"ignore_count": 0, "enabled": True} | told
            changes.pop("number", None)
            self._ask(lambda client: client.edit_breakpoint(wanted.number, **changes), _nothing)
        self._ask(lambda client: client.breakpoints(), self._keep)

    def _edit(self, number: str, **changes: Any) -> None:
        known = self._numbered(number)
        self._ask(lambda client: client.edit_breakpoint(known.number, **changes), _nothing)
        self._ask(lambda client: client.breakpoints(), self._keep)

    def _learn(self, found: list[Breakpoint]) -> None:
        self._known = found
        if isinstance(self.app.screen, Breakpoints):
            self.app.screen.show(found)

    def _keep(self, found: list[Breakpoint]) -> None:
        self._learn(found)
        try:
            self._kept.save(found)
        except AgvizError as error:
            self.notify(clean(str(error)), severity="warning", markup=False)

    def _say_added(self, made: Breakpoint) -> None:
        self.notify(f"Breakpoint {made.number}: {clean(made.describe())}", markup=False)

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

    def _leave(self, choice: Choice | None) -> None:
        if choice is None:
            return
        if choice == "end" and self._debuggee is not None:
            try:
                self._debuggee.process.terminate()
                self._debuggee.process.wait(0.5)
            except subprocess.TimeoutExpired:
                self._debuggee.process.kill()
        self.app.exit()


class LiveApp(AgvizApp):
    """The application on a program that is being debugged.

    Args:
        client: speaks with the program.
        debuggee: the program, where it was started from here.
        folder: of the project, whose breakpoints are kept.
    """

    CSS_PATH: ClassVar[list[str | PurePath]] = ["agviz.tcss", "live.tcss"]  # type: ignore[assignment]

    def __init__(self, client: Client, debuggee: Debuggee | None, folder: Path) -> None:
        self._client = client
        self._debuggee = debuggee
        self._folder = folder
        super().__init__([client.hello.trace], Settings.read())

    def make_session(self, paths: Sequence[Path], reader: ReaderThread) -> Session:
        """A session with the program behind it."""
        return LiveSession(
            paths, reader, client=self._client, debuggee=self._debuggee, folder=self._folder
        )

    def hung_up(self) -> None:
        """End the program, which was to be seen in that terminal."""
        if self._debuggee is not None:
            self._debuggee.end()


def _nothing(_answer: object) -> None:
    pass


def _add(client: Client, wanted: Breakpoint) -> Breakpoint:
    return client.add_breakpoint(wanted)


def _health(health: Any) -> str:
    """What was measured, on one line."""
    shape = "?" if health.shape is None else str(list(health.shape))
    facts = [f"{shape} {health.dtype}"]
    facts += [
        count(number, name)
        for number, name in ((health.nan, "NaN"), (health.posinf, "+Inf"), (health.neginf, "-Inf"))
        if number
    ]
    if health.norm is not None:
        facts.append(f"{health.min:.4g} … {health.max:.4g}, norm {health.norm:.4g}")
    return ", ".join(facts)
