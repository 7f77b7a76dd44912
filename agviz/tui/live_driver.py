"""The driver of a program that is being debugged.

Where the playhead is at the moment at which the program is, a key that goes forward has the
program run; anywhere before it, it moves the playhead. So one can look at what was, and come back
to now. Other than in a recording, it moves through all graph tasks of the process.
"""

from __future__ import annotations

import subprocess
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from textual.widgets import Static

from agviz.debugger.breakpoint_file import BreakpointFile
from agviz.debugger.messages import HOLDS, Logged, Stopped
from agviz.traces.nodes import short_name
from agviz.tui import state_line
from agviz.tui.command_line import CommandError
from agviz.tui.drivers import RecordedDriver
from agviz.tui.live_breakpoints import LiveBreakpoints
from agviz.tui.live_watches import LiveWatches
from agviz.tui.model import Key, OtherTasks, Playhead
from agviz.tui.other_tasks import turns_after
from agviz.tui.panels.output import ANSWER, Output
from agviz.tui.program import LiveProgram
from agviz.tui.reader_thread import Start
from agviz.tui.screens.leave import Leave
from agviz.tui.stopped_node import StoppedNode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from textual.widget import Widget

    from agviz.debugger.client import Client
    from agviz.debugger.launch import Debuggee
    from agviz.debugger.messages import Hold, How, Notice, Stops
    from agviz.tui.arrangement import Arrangement
    from agviz.tui.board import Board
    from agviz.tui.model import View
    from agviz.tui.other_tasks import TurnsRead
    from agviz.tui.reader_thread import Listed, Loaded, Move
    from agviz.tui.screens.leave import Choice

_SECONDS_BETWEEN_LOOKS: Final = 0.1
_MOST_AHEAD: Final = 20
_MOST_STEPS: Final = 100_000
_WAITING: Final = "The program has not called backward yet."
_RUNS: Final = "The program runs; ctrl+c pauses it."


class LiveDriver(RecordedDriver):
    """Runs the program where the playhead is at now, or else moves the playhead.

    Args:
        board: of the screen.
        arrangement: of its panels.
        client: speaks with the program.
        debuggee: the program, where it was started from here.
        folder: of the project, whose breakpoints are kept.
    """

    def __init__(
        self,
        board: Board,
        arrangement: Arrangement,
        *,
        client: Client,
        debuggee: Debuggee | None,
        folder: Path,
    ) -> None:
        super().__init__(board, arrangement)
        self.offers = frozenset({"program"})
        self.program = LiveProgram(board, arrangement, client=client, debuggee=debuggee)
        kept = BreakpointFile(folder, client.hello.program)
        self.breakpoints = LiveBreakpoints(self.program, board, kept)
        self.watches = LiveWatches(self.program, board, kept)
        self.stopped_node = StoppedNode(self.program, board, arrangement)
        board.alive = self.program.alive
        arrangement.panels = (*arrangement.panels, Output)
        self._line = Static("", id="live", markup=False)
        self._hold: Hold = "all"
        self._asked = self._moved = 0
        """Moves of the playhead that were asked for, and those of them that are done."""
        self._wants_now = False
        """Whether the last of them goes to now."""
        self._lanes = 0
        """Threads that there is room for."""
        self.is_stepping = False
        self._ahead: deque[How] = deque()
        """Steps that were typed while the one before was under way."""

    def widgets(self) -> Iterator[Widget]:
        """What is watched, and a line about the state of the program."""
        yield self.watches.lines
        yield self._line

    def begin(self) -> None:
        """Stop where a program that is debugged stops by default."""
        program = self.program
        program.begin(self._notice)
        self.breakpoints.load()
        self.watches.load()
        first = program.debuggee is not None
        program.ask(
            lambda client: client.set_stops(first=first, exceptions=True, nonfinite="first")
        )
        if program.debuggee is None:
            program.ask(lambda client: client.pause())
        self.board.screen.set_interval(_SECONDS_BETWEEN_LOOKS, self._look_at_output)
        self._show_state()

    # What the program says.

    def _notice(self, notice: Notice) -> None:
        """It has stopped, or runs, or has ended."""
        program = self.program
        if isinstance(notice, Logged):
            self._print_log(notice)
            return
        if isinstance(notice, Stopped):
            self._notice_stop(notice)
        elif notice.what in {"ended", "gone"}:
            program.is_over = True
            self.is_stepping = False
            program.stops.clear()
            program.stop_tensors = None
            self.board.reader.poll()
            if notice.why:
                self.board.screen.notify(notice.why, severity="error", markup=False)
        elif notice.thread is not None:
            program.stops.pop(notice.thread, None)
        program.show()
        self._show_state()

    def _notice_stop(self, stop: Stopped) -> None:
        program = self.program
        before = program.stop
        program.stops.pop(stop.thread, None)
        program.stops[stop.thread] = stop
        self.board.reader.poll()
        if program.looked_at is None and before is not None:
            program.looked_at = before.thread
        if program.stop is not stop:
            why = " and ".join(stop.reasons)
            self.board.notify(f"T{stop.thread} is stopped, too: {why}. < and > choose it.")
            return
        self.is_stepping = False
        self.go_to_now()
        if stop.reasons == ("step",) and self._ahead:
            self._step(self._ahead.popleft())
            return
        self._ahead.clear()
        self.stopped_node.look_at_tensors()
        self.watches.look()
        self.breakpoints.ask()
        for sentence in stop.passed:
            program.output.add(f"{sentence}\n", ANSWER)
            self.board.notify(sentence)
        if "exception" in stop.reasons:
            text = f"{stop.details.get('error')}: {stop.details.get('message')}"
            program.output.add(f"{text}\n", ANSWER)
            self.board.screen.notify(text, severity="error", markup=False)

    def _print_log(self, logged: Logged) -> None:
        """Print what a log point says."""
        where = f"pass {logged.graph_task}"
        if logged.node is not None:
            where += f", {short_name(logged.name)}"
        lines = f"log {logged.breakpoint} ({where}): {logged.text}\n"
        if logged.left_out:
            lines = f"… {logged.left_out:,} more of log points, too many a second\n{lines}"
        self.program.output.add(lines, ANSWER)

    # What the reader thread found.

    def listed(self, message: Listed) -> None:
        """Open the newest graph task where none is open."""
        known = self.board.tasks
        self.board.take_list(message)
        tasks, stop = message.tasks[0], self.program.stop
        is_new = stop is not None and not any(each.has(stop.graph_task) for each in known)
        if stop is not None and (message.is_anew or is_new):
            self.go_to_now()
        elif tasks and (self.board.view is None or message.is_anew):
            self.board.reader.load(Key(0, tasks.ids[-1]))
            self.board.reader.move(Playhead.to_end)
        elif not tasks:
            self._show_state()

    def loaded(self, message: Loaded) -> None:
        """Look what belongs to another graph task."""
        self.breakpoints.find_marks()
        self._look_beside(message.recording.key)

    @property
    def goes_on(self) -> bool:
        """Whether what comes behind the last event is still to happen."""
        return not self.program.is_over

    def _take_turns(self, found: TurnsRead) -> None:
        """Show what threads do in other graph tasks than the one that is shown by now."""
        known = self.program.other_tasks
        if self.board.view is None or self.board.view.recording.key != found.key:
            return
        if known is None or known.key != found.key:
            known = OtherTasks(found.key)
        if known.until == found.after:
            self.program.other_tasks = known.more(found.turns, found.until)
            self.program.show()
            if found.turns:
                self._look_beside(found.key)

    # Keys and commands.

    def works_in_prompt(self, command: str) -> bool:
        """Python that runs can be interrupted while the next is typed."""
        return command == "live.pause" and self.program.runs_python

    def node(self, by: int) -> None:
        """Run ``by`` nodes on, or go there or back in what was."""
        if by <= 0 or not self._steps("node", by):
            self._travel(by, nodes=True)

    def event(self, by: int) -> None:
        """Run ``by`` events on, or go there or back in what was."""
        if by <= 0 or not self._steps("event", by):
            self._travel(by, nodes=False)

    def hook(self) -> None:
        """Run past the node's next hook."""
        if not self._steps("hook"):
            self.board.notify("Go to now first: press c." if self.program.stops else _RUNS)

    def stop(self, by: int) -> None:
        """Run on, or come back to now; or go to the previous finding in what was."""
        if by < 0 or self.program.is_over:
            super().stop(by)
        elif self.program.stop is None:
            self.board.notify(_RUNS)
        elif not self._is_now:
            self.go_to_now()
        else:
            self._go_on()

    def until(self) -> None:
        """Run to the selected node, or go to where it ran."""
        view, stop = self.board.shown, self.program.stop
        node, recording = view.selected, view.recording
        if (
            node is None
            or stop is None
            or recording.is_over
            or recording.columns.execution_of(node) is not None
        ):
            super().until()
        else:
            task = recording.key.graph_task
            self._run(lambda client: client.until(task, node, stop.thread))

    def only(self, thread: int | None) -> None:
        """Go by one thread's nodes only, in whichever graph task, and look at its stop."""
        self.program.thread = thread
        super().only(thread)
        if thread in self.program.stops and self.program.looked_at != thread:
            self.program.looked_at = thread
            self._look_at_stop()

    def pause(self) -> None:
        """Stop at the next event."""
        program = self.program
        self._ahead.clear()
        if program.is_over:
            self.board.notify("The program has ended.")
        elif program.runs_python:
            program.link.interrupt()
        elif program.stop is not None and not self._chosen_runs:
            self.board.notify("The program is stopped already.")
        else:
            thread = program.thread if self._chosen_runs else program.looked_at
            self.board.screen.notify("Pausing at the next event.", timeout=2)
            program.ask(lambda client: client.pause(thread))

    def hold(self, whom: str) -> None:
        """Have a stop hold all threads, or its own."""
        if whom not in HOLDS:
            raise CommandError("A stop holds all threads, or one.")
        hold: Any = whom

        def take(found: Stops) -> None:
            self._hold = found.hold
            self._show_state()

        self.program.ask(lambda client: client.set_stops(hold=hold), take)

    def now(self) -> None:
        """Go to the moment at which the program is."""
        if self.program.is_stopped():
            self.go_to_now()

    def quit(self) -> None:
        """Leave, after asking where the program would be lost."""
        if self.program.is_over:
            super().quit()
        else:
            can_end = self.program.debuggee is not None
            self.board.screen.app.push_screen(Leave(can_end=can_end), self._leave)

    # The playhead.

    def move(self, move: Move) -> None:
        """Ask for another moment, and know when it is reached."""
        super().move(move)
        self._wants_now = False
        self._mark()

    def go(self, graph_task: int, seq: int) -> None:
        """Go to another graph task, and know when it is reached."""
        super().go(graph_task, seq)
        self._wants_now = False
        self._mark()

    def go_to_now(self) -> None:
        """Go to where the thread is stopped that is looked at."""
        stop = self.program.stop
        if stop is None or not self.board.tasks[0].has(stop.graph_task):
            return  # the reader lists it soon
        key = Key(0, stop.graph_task)
        if self.board.view is None or self.board.view.recording.key != key:
            # At that place at once: moves that wait may all be made before it is opened.
            self.board.reader.begin(Start(key, stop.seq, ""))
        self.board.reader.move(partial(Playhead.to_seq, seq=stop.seq))
        self._wants_now = True
        self._mark()
        self._look_beside(key)

    def _travel(self, by: int, *, nodes: bool) -> None:
        view = self.board.shown
        if by:
            is_last = view.moment.position >= view.recording.event_count
            if by > 0 and is_last and not self.program.stops and not self.program.is_over:
                self.board.notify(_RUNS)
            self._wants_now = False
            self.board.reader.travel(by, thread=self.program.thread, nodes=nodes)
            self._mark()

    def _mark(self) -> None:
        self._asked += 1
        number = self._asked
        self.board.reader.ask(lambda _trace, _recording: number, self._take_moved)

    def _take_moved(self, number: int) -> None:
        """The playhead is where it was asked to be."""
        self._moved = number
        self._show_state()

    @property
    def _is_now(self) -> bool:
        if self._moved != self._asked:
            return self._wants_now and self.program.stop is not None
        view, stop = self.board.view, self.program.stop
        if view is None or stop is None or view.recording.key.graph_task != stop.graph_task:
            return False
        return view.moment.event is not None and view.moment.event.seq >= stop.seq

    # Running.

    @property
    def _chosen_runs(self) -> bool:
        """Whether the thread that was chosen runs while others are stopped."""
        chosen = self.program.thread
        return self._hold == "one" and chosen is not None and chosen not in self.program.stops

    def _steps(self, how: How, count: int = 1) -> bool:
        """Have the program run steps, where the playhead is at now."""
        if self.is_stepping:
            if len(self._ahead) < _MOST_AHEAD:
                self._ahead.extend([how] * min(count, _MOST_STEPS))
            return True
        if not self._is_now:
            return False
        if self._chosen_runs:
            self.board.notify(
                f"T{self.program.thread} is running: ctrl+c pauses it, m goes by all threads."
            )
            return True
        self._ahead.extend([how] * (min(count, _MOST_STEPS) - 1))
        self._step(how)
        return True

    def _step(self, how: How) -> None:
        program, stop = self.program, self.program.stop
        if stop is not None:
            is_own = how == "hook" or self._hold == "one"
            thread = stop.thread if is_own else program.thread
            program.looked_at = stop.thread if self._hold == "one" else None
            self._run(lambda client: client.step(how, thread))
            self.is_stepping = True

    def _go_on(self) -> None:
        program, thread = self.program, None
        if self._hold == "one" and program.stop is not None:
            thread = program.stop.thread
        self._run(lambda client: client.go_on(thread))
        program.looked_at = None
        if program.stop is not None:
            self._look_at_stop()

    def _run(self, command: Callable[[Client], None]) -> None:
        """Have the thread that is looked at run, and those that it holds."""
        program, stop = self.program, self.program.stop
        if self._hold == "all" or stop is None:
            program.stops.clear()
            program.looked_at = None
        else:
            program.stops.pop(stop.thread, None)
        program.stop_tensors = None
        self.is_stepping = False
        program.show()
        self.watches.show()
        self._show_state()
        program.ask(command)
        if not program.stops:
            self.board.reader.follow(on=True)

    def _look_at_stop(self) -> None:
        self.go_to_now()
        self.stopped_node.look_at_tensors()
        self.watches.look()
        self._show_state()

    def _look_beside(self, key: Key) -> None:
        """Read on what threads do in other graph tasks than one, up to now."""
        program, known = self.program, self.program.other_tasks
        last = max((stop.seq for stop in program.stops.values()), default=-1)
        after = known.until if known is not None and known.key == key else -1
        if last >= 0 or program.is_over:
            question = turns_after(key, after, last if last >= 0 else 2**62)
            self.board.reader.ask(question, self._take_turns)

    # Showing.

    def drawn(self, view: View) -> None:
        """Say whether this is now, and make room for the threads that there are by now."""
        self._show_state()
        if len(view.threads) != self._lanes:
            self._lanes = len(view.threads)
            self.arrangement.share_room()

    def _show_state(self) -> None:
        program, line = self.program, self._line
        text = self._state_line(line.content_size.width)
        line.update(text)
        line.set_class(program.stop is not None, "-stopped")
        line.set_class(program.is_over and bool(program.exit_code), "-failed")
        if self.board.view is None:
            lines = "\n".join(program.output.last_lines)
            self.arrangement.say(f"{text}\n\n{_WAITING if not program.is_over else ''}\n\n{lines}")

    def _state_line(self, width: int) -> str:
        program = self.program
        if program.is_over:
            return state_line.ended(program.exit_code)
        if program.stop is None:
            return state_line.running(program.looked_at, program.stops)
        return state_line.stopped(
            program.stop,
            stopped_threads=len(program.stops),
            is_now=self._is_now or self.board.view is None,
            holds_one=self._hold == "one",
            width=width,
        )

    def _look_at_output(self) -> None:
        if self.program.debuggee is None:
            return
        came = self.program.read_output()
        if (came and self.board.view is None) or self.program.is_over:
            self._show_state()

    def _leave(self, choice: Choice | None) -> None:
        if choice is None:
            return
        if choice == "end" and self.program.debuggee is not None:
            process = self.program.debuggee.process
            try:
                process.terminate()
                process.wait(0.5)
            except subprocess.TimeoutExpired:
                process.kill()
        self.board.screen.app.exit()
