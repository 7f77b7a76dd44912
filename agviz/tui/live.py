"""The session on a program that is being debugged.

Where the playhead is at the moment at which the program is, a key that goes forward has the
program run; anywhere before it, it moves the playhead. So one can look at what was, and come back
to now. Other than in a recording, it moves through all graph tasks of the process.
"""

from __future__ import annotations

import signal
import subprocess
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from rich.cells import cell_len
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import Static

from agviz.debugger.client import Stopped
from agviz.debugger.stops import HOLDS
from agviz.traces.nodes import short_name
from agviz.tui.arranging import PANELS
from agviz.tui.breaking import Breaking
from agviz.tui.commands import CommandError, Usage
from agviz.tui.looking import Looking
from agviz.tui.model import Key, OtherTasks, Playhead
from agviz.tui.other_tasks import turns_after
from agviz.tui.panels.output import ANSWER, STDERR, STDOUT, Output
from agviz.tui.prompt import Prompt
from agviz.tui.reader_thread import Start
from agviz.tui.screens.leave import Leave

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from textual.app import ComposeResult

    from agviz.debugger.client import Client, Stops
    from agviz.debugger.launch import Debuggee
    from agviz.debugger.stops import Hold, How
    from agviz.tui.link import NoticeReceived
    from agviz.tui.model import View
    from agviz.tui.other_tasks import TurnsRead
    from agviz.tui.panels.panel import Panel
    from agviz.tui.reader_thread import Listed, Loaded, Move, PlayheadMoved, ReaderThread
    from agviz.tui.screens.leave import Choice

_SECONDS_BETWEEN_LOOKS: Final = 0.1
_OUTPUT_LINES: Final = 5
_MANY_OUTPUT_LINES: Final = 8
_TALL: Final = 50
"""From so many lines on, there are many of them for the output."""
_MOST_AHEAD: Final = 20
_MOST_STEPS: Final = 100_000
_WAITING: Final = "The program has not called backward yet."
_BETWEEN: Final = " · "
_RUNS: Final = "The program runs; ctrl+c pauses it."


@dataclass
class Moved(Message):
    """A move of the playhead is done."""

    number: int


class LiveSession(Breaking, Looking):
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
        Binding("o", "hook", "Hook", tooltip="Step over a hook", show=False, id="live.hook"),
        Binding("ctrl+c", "pause", "Pause", priority=True, id="live.pause"),
        Binding(
            str(len(PANELS)),
            "show_panel('output')",
            "Output panel",
            show=False,
            id="panel.output",
        ),
        Binding("ctrl+z", "app.suspend_process", "Suspend", show=False, id="suspend"),
        Binding("q", "leave", "Quit", id="quit"),
    ]

    VERBS: ClassVar[Mapping[str, Usage]] = {
        "hold": Usage("all|one", "whether a stop holds all threads or its own"),
        "hook": Usage("", "run past the node's next hook"),
        "pause": Usage("", "stop at the next event"),
        "now": Usage("", "go to the moment at which the program stands"),
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
        super().__init__(paths, reader, client=client, debuggee=debuggee, folder=folder)
        self._hold: Hold = "all"
        self._asked = self._moved = 0
        """Moves of the playhead that were asked for, and those of them that are done."""
        self._wants_now = False
        """Whether the last of them goes to now."""
        self._lanes = 0
        """Threads that there is room for."""
        self._is_stepping = False
        self._ahead: deque[How] = deque()
        """Steps that were typed while the one before was under way."""

    def compose(self) -> ComposeResult:
        """What any session has, and a line about the state of the program."""
        yield from super().compose()
        yield Static("", id="live", markup=False)

    def on_mount(self) -> None:
        """Stop where a program that is debugged stops by default."""
        self.move_child(self.query_one("#live"), before=self.query_one("#status"))
        self.link.start()
        self.notices_thread.start()
        self.load_breakpoints()
        first = self.debuggee is not None
        self.ask_program(
            lambda client: client.set_stops(first=first, exceptions=True, nonfinite="first")
        )
        if self.debuggee is None:
            self.ask_program(lambda client: client.pause())
        self.set_interval(_SECONDS_BETWEEN_LOOKS, self._look_at_output)
        self._show_stand()

    # What the program says.

    def on_notice_received(self, message: NoticeReceived) -> None:
        """It has stopped, or runs, or has ended."""
        notice = message.notice
        if isinstance(notice, Stopped):
            self._hear_stop(notice)
        elif notice.what in {"ended", "gone"}:
            self.is_over = True
            self._is_stepping = False
            self.stops.clear()
            self.stop_tensors = None
            self.reader.poll()
            if notice.why:
                self.notify(notice.why, severity="error", markup=False)
        elif notice.thread is not None:
            self.stops.pop(notice.thread, None)
        self.show_alive()
        self._show_stand()

    def _hear_stop(self, stop: Stopped) -> None:
        before = self.stop
        self.stops.pop(stop.thread, None)
        self.stops[stop.thread] = stop
        self.reader.poll()
        if self.looked_at is None and before is not None:
            self.looked_at = before.thread
        if self.stop is not stop:
            why = " and ".join(stop.reasons)
            self.notify(f"T{stop.thread} stands, too: {why}. < and > choose it.", markup=False)
            return
        self._is_stepping = False
        self._go_to_now()
        if stop.reasons == ("step",) and self._ahead:
            self._step(self._ahead.popleft())
            return
        self._ahead.clear()
        self.look_at_tensors()
        self.ask_breakpoints()
        if "exception" in stop.reasons:
            text = f"{stop.details.get('error')}: {stop.details.get('message')}"
            self.output.add(f"{text}\n", ANSWER)
            self.notify(text, severity="error", markup=False)

    def on_listed(self, message: Listed) -> None:
        """Open the newest graph task where none is open."""
        message.prevent_default()
        known = [row.id for rows in self.tasks for row in rows]
        self.take_list(message)
        rows = message.tasks[0]
        if self.stop is not None and (message.is_anew or self.stop.graph_task not in known):
            self._go_to_now()
        elif rows and (self.view is None or message.is_anew):
            self.reader.load(Key(0, rows[-1].id))
            self.reader.move(Playhead.to_end)
        elif not rows:
            self._show_stand()

    def on_loaded(self, message: Loaded) -> None:
        """Look what belongs to another graph task."""
        self.find_marks()
        self._look_beside(message.recording.key)

    def on_playhead_moved(self, message: PlayheadMoved) -> None:
        """Show another moment; the end is no end while the program goes on."""
        message.moved = message.moved or not self.is_over

    def on_turns_read(self, message: TurnsRead) -> None:
        """Show what threads do in other graph tasks than the one that is shown by now."""
        known = self.other_tasks
        if self.view is None or self.view.recording.key != message.key:
            return
        if known is None or known.key != message.key:
            known = OtherTasks(message.key)
        if known.until == message.after:
            self.other_tasks = known.more(message.turns, message.until)
            self.show_alive()
            if message.turns:
                self._look_beside(message.key)

    # Keys.

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Some keys do something before there is anything to show."""
        if action == "pause" and self.runs_python:
            return True
        if action in {"pause", "leave", "edit_breakpoints"}:
            return not any(prompt.has_class("-open") for prompt in self.query(Prompt))
        return super().check_action(action, parameters)

    def action_node(self, by: int) -> None:
        """Run to the next node, or go there or back in what was."""
        if by <= 0 or not self._steps("node", by):
            self._travel(by, nodes=True)

    def action_event(self, by: int) -> None:
        """Run to the next event, or go there or back in what was."""
        if by <= 0 or not self._steps("event", by):
            self._travel(by, nodes=False)

    def action_hook(self) -> None:
        """Run past the node's next hook."""
        if not self._steps("hook"):
            self.notify("Go to now first: press c." if self.stops else _RUNS)

    def action_stop(self, by: int) -> None:
        """Run on, or come back to now; or go to the previous finding in what was."""
        if by < 0 or self.is_over:
            super().action_stop(by)
        elif self.stop is None:
            self.notify(_RUNS)
        elif not self._is_now:
            self._go_to_now()
        else:
            self._go_on()

    def action_until(self) -> None:
        """Run to the selected node, or go to where it ran."""
        view, stop = self.view, self.stop
        if view is None or view.selected is None or stop is None:
            super().action_until()
            return
        node, graph_task = view.selected, view.recording.key.graph_task
        ran = view.recording.columns.execution_of(node) is not None
        if ran or view.recording.is_over:
            super().action_until()
        else:
            self._run(lambda client: client.until(graph_task, node, stop.thread))

    def action_thread(self, by: int) -> None:
        """Go by the next or previous thread's nodes only, and look at its stop where it is."""
        super().action_thread(by)
        self._look_at_thread()

    def command_thread(self, argument: str) -> None:
        """``:thread``."""
        super().command_thread(argument)
        self._look_at_thread()

    def action_pause(self) -> None:
        """Stop at the next event."""
        self._ahead.clear()
        if self.is_over:
            self.notify("The program has ended.")
        elif self.runs_python:
            self.link.interrupt()
        elif self.stop is not None and not self._chosen_runs:
            self.notify("The program stands already.")
        else:
            thread = self.thread if self._chosen_runs else self.looked_at
            self.notify("Pausing at the next event.", timeout=2)
            self.ask_program(lambda client: client.pause(thread))

    def action_leave(self) -> None:
        """Leave, after asking where the program would be lost."""
        if self.is_over:
            self.app.exit()
        else:
            self.app.push_screen(Leave(can_end=self.debuggee is not None), self._leave)

    def go_elsewhere(self, graph_task: int, seq: int) -> None:
        """Go to another graph task, and know when it is reached."""
        super().go_elsewhere(graph_task, seq)
        self._wants_now = False
        self._mark()

    # Commands.

    def command_hold(self, argument: str) -> None:
        """``:hold``."""
        if argument not in HOLDS:
            raise CommandError("A stop holds all threads, or one.")
        hold: Any = argument

        def take(found: Stops) -> None:
            self._hold = found.hold
            self._show_stand()

        self.ask_program(lambda client: client.set_stops(hold=hold), take)

    def command_hook(self, _argument: str) -> None:
        """``:hook``."""
        self.action_hook()

    def command_pause(self, _argument: str) -> None:
        """``:pause``."""
        self.action_pause()

    def command_now(self, _argument: str) -> None:
        """``:now``."""
        if self.is_stopped():
            self._go_to_now()

    def command_quit(self, _argument: str) -> None:
        """``:quit``."""
        self.action_leave()

    # What they need.

    def share_room(self) -> None:
        """Give the output some lines at the bottom."""
        super().share_room()
        rows = self.query_one("#panels").styles.grid_rows
        if rows and len(rows) == 3:
            lines = _MANY_OUTPUT_LINES if self.size.height >= _TALL else _OUTPUT_LINES
            self.query_one("#panels").styles.grid_rows = (
                " ".join(str(row) for row in rows) + f" {lines}"
            )

    def move(self, move: Move) -> None:
        """Ask for another moment, and know when it is reached."""
        super().move(move)
        self._wants_now = False
        self._mark()

    def _travel(self, by: int, *, nodes: bool) -> None:
        view = self.view
        if view is not None and by:
            is_last = view.moment.position >= view.recording.event_count
            if by > 0 and is_last and not self.stops and not self.is_over:
                self.notify(_RUNS)
            self._wants_now = False
            self.reader.travel(by, thread=self.thread, nodes=nodes)
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

    @property
    def _chosen_runs(self) -> bool:
        """Whether the thread that was chosen runs while others are stopped."""
        chosen = self.thread
        return self._hold == "one" and chosen is not None and chosen not in self.stops

    def _steps(self, how: How, count: int = 1) -> bool:
        """Have the program run steps, where the playhead is at now."""
        if self._is_stepping:
            if len(self._ahead) < _MOST_AHEAD:
                self._ahead.extend([how] * min(count, _MOST_STEPS))
            return True
        if not self._is_now:
            return False
        if self._chosen_runs:
            self.notify(f"T{self.thread} does not stand: ctrl+c pauses it, m goes by all threads.")
            return True
        self._ahead.extend([how] * (min(count, _MOST_STEPS) - 1))
        self._step(how)
        return True

    def _step(self, how: How) -> None:
        stop = self.stop
        if stop is not None:
            is_own = how == "hook" or self._hold == "one"
            thread = stop.thread if is_own else self.thread
            self.looked_at = stop.thread if self._hold == "one" else None
            self._run(lambda client: client.step(how, thread))
            self._is_stepping = True

    def _go_on(self) -> None:
        thread = None
        if self._hold == "one" and self.stop is not None:
            thread = self.stop.thread
        self._run(lambda client: client.go_on(thread))
        self.looked_at = None
        if self.stop is not None:
            self._look_at_stop()

    def _run(self, command: Callable[[Client], None]) -> None:
        """Have the thread that is looked at run, and those that it holds."""
        stop = self.stop
        if self._hold == "all" or stop is None:
            self.stops.clear()
            self.looked_at = None
        else:
            self.stops.pop(stop.thread, None)
        self.stop_tensors = None
        self._is_stepping = False
        self.show_alive()
        self._show_stand()
        self.ask_program(command)
        if not self.stops:
            self.reader.follow(on=True)

    def _look_at_thread(self) -> None:
        """The user has chosen a thread."""
        if self.thread in self.stops and self.looked_at != self.thread:
            self.looked_at = self.thread
            self._look_at_stop()

    def _look_at_stop(self) -> None:
        self._go_to_now()
        self.look_at_tensors()
        self._show_stand()

    def _go_to_now(self) -> None:
        stop = self.stop
        if stop is None or not any(row.id == stop.graph_task for row in self.tasks[0]):
            return  # the reader lists it soon
        key = Key(0, stop.graph_task)
        if self.view is None or self.view.recording.key != key:
            # At that place at once: moves that wait may all be made before it is opened.
            self.reader.begin(Start(key, stop.seq, ""))
        self.reader.move(partial(Playhead.to_seq, seq=stop.seq))
        self._wants_now = True
        self._mark()
        self._look_beside(key)

    def _look_beside(self, key: Key) -> None:
        """Read on what threads do in other graph tasks than one, up to now."""
        known, last = self.other_tasks, max((stop.seq for stop in self.stops.values()), default=-1)
        after = known.until if known is not None and known.key == key else -1
        if last >= 0 or self.is_over:
            self.reader.ask(turns_after(key, after, last if last >= 0 else 2**62))

    def watch_view(self, view: View | None) -> None:
        """Draw everything anew, and say whether this is now."""
        super().watch_view(view)
        self._show_stand()
        if view is not None and len(view.threads) != self._lanes:
            self._lanes = len(view.threads)
            self.share_room()

    def _show_stand(self) -> None:
        line = self.query_one("#live", Static)
        state_line = self._state_line(line.content_size.width)
        line.update(state_line)
        line.set_class(self.stop is not None, "-stopped")
        line.set_class(self.is_over and bool(self._exit_code), "-failed")
        if self.view is None:
            lines = "\n".join(self.output.last_lines)
            self.say(f"{state_line}\n\n{_WAITING if not self.is_over else ''}\n\n{lines}")

    @property
    def _exit_code(self) -> int | None:
        return None if self.debuggee is None else self.debuggee.process.poll()

    def _state_line(self, width: int) -> str:
        """The state of the program, in a line; what has no room is left out as a whole."""
        stop = self.stop
        if self.is_over:
            return _end(self._exit_code)
        if stop is None:
            others = ", ".join(f"T{thread}" for thread in self.stops)
            if not others:
                return "● The program runs"
            return f"● T{self.looked_at} runs · {others} stands, > chooses it"
        before = "before" if stop.is_before_a_node else f"at {stop.event} of"
        what = f"{before} {short_name(stop.name)}" if stop.name else f"at {stop.event}"
        numbers = ", ".join(str(number) for number in stop.breakpoints)
        why = " and ".join(stop.reasons).replace("breakpoint", f"breakpoint {numbers}")
        is_now = self._is_now or self.view is None
        others = f"{len(self.stops)} threads stand" if len(self.stops) > 1 else ""
        alone = "others run" if self._hold == "one" and not others else ""
        facts = [
            (0, f"■ T{stop.thread} {what}"),
            (5, stop.parameter or stop.module),
            (2, why),
            (4, stop.line),
            (6, "now") if is_now else (1, "you look at the past, c goes on"),
            (3, others or alone),
        ]
        facts = [fact for fact in facts if fact[1]]
        while len(facts) > 1 and cell_len(_BETWEEN.join(text for _, text in facts)) > width > 0:
            facts.remove(max(facts))
        return _BETWEEN.join(text for _, text in facts)

    def _look_at_output(self) -> None:
        if self.debuggee is None:
            return
        came = False
        for stream, look in ((self.debuggee.stdout, STDOUT), (self.debuggee.stderr, STDERR)):
            found = stream.read()
            if found:
                came = True
                self.output.add_bytes(found, look)
        if (came and self.view is None) or self.is_over:
            self._show_stand()

    def _leave(self, choice: Choice | None) -> None:
        if choice is None:
            return
        if choice == "end" and self.debuggee is not None:
            try:
                self.debuggee.process.terminate()
                self.debuggee.process.wait(0.5)
            except subprocess.TimeoutExpired:
                self.debuggee.process.kill()
        self.app.exit()


def _end(code: int | None) -> str:
    """How a program has ended, as far as that is known."""
    if code is None:
        return "✗ The program has ended"
    if code >= 0:
        return f"{'✗' if code else '■'} The program has ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    return f"✗ The program was ended by {name}"
