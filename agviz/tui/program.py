"""The program behind a live screen: where it is stopped, and how it is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from agviz.debugger.client import RefusedError
from agviz.tui.link import Link, NoticeThread
from agviz.tui.panels.output import ANSWER, STDERR, STDOUT, Output

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agviz.debugger.client import Client
    from agviz.debugger.launch import Debuggee
    from agviz.debugger.messages import Notice, Stopped
    from agviz.tui.arrangement import Arrangement
    from agviz.tui.board import Board
    from agviz.tui.model import Key, Mark, OtherTasks, StopTensors, View

_NO_MARKS: Final[Mapping[int, Mark]] = {}


class LiveProgram:
    """What is known of the program, and the way to ask it.

    Args:
        board: of the screen that shows its trace.
        arrangement: of the panels.
        client: speaks with it.
        debuggee: the process, where it was started from here.
    """

    def __init__(
        self,
        board: Board,
        arrangement: Arrangement,
        *,
        client: Client,
        debuggee: Debuggee | None,
    ) -> None:
        self._board = board
        self._arrangement = arrangement
        self._client = client
        self.link = Link(client, board.screen.post_message, self._show_refusal)
        self.debuggee = debuggee
        self.knows_lines = client.hello.lines
        self.stops: dict[int, Stopped] = {}
        """Where threads have stopped, by thread; the last that stopped is the last."""
        self.looked_at: int | None = None
        """The thread whose stop is looked at; None: the one that stopped last."""
        self.is_over = False
        self.python_runs = 0
        """Inputs of Python that were sent and have not been answered."""
        self.line_marks: Mapping[str, Mark] = {}
        """Breakpoints at lines, by the line as it was written."""
        self.marks: Mapping[int, Mark] = _NO_MARKS
        self.marked: Key | None = None
        """The graph task that the marks are of."""
        self.stop_tensors: StopTensors | None = None
        self.other_tasks: OtherTasks | None = None
        self.thread: int | None = None
        """The thread by whose nodes one goes, whichever graph task is shown; None: any."""

    def begin(self, then: Callable[[Notice], None]) -> None:
        """Begin to ask, and to hand what the program says by itself to ``then``."""
        self.link.start()
        NoticeThread(self._client, self._board.screen.post_message, then).start()

    @property
    def stop(self) -> Stopped | None:
        """The stop of the thread that is looked at; None: it runs, or the program has ended."""
        if self.looked_at is not None:
            return self.stops.get(self.looked_at)
        return next(reversed(self.stops.values()), None)

    @property
    def runs_python(self) -> bool:
        """Whether a stopped thread runs Python that was typed."""
        return self.python_runs > 0

    @property
    def exit_code(self) -> int | None:
        """None: it runs, or that is not known."""
        return None if self.debuggee is None else self.debuggee.process.poll()

    # What is shown beside the recording.

    def alive(self, view: View) -> View:
        """``view`` with what is known of the program."""
        key, others = view.recording.key, self.other_tasks
        return replace(
            view,
            is_live=True,
            thread=self.thread,
            marks=self.marks if self.marked == key else _NO_MARKS,
            line_marks=self.line_marks,
            stop_tensors=self.stop_tensors,
            stopped_threads=frozenset(self.stops),
            other_tasks=others if others is not None and others.key == key else None,
        )

    def show(self) -> None:
        """Draw what is known of the program anew."""
        if self._board.view is not None:
            self._board.show(self.alive(self._board.view))

    @property
    def output(self) -> Output:
        """What the program prints."""
        return self._board.screen.query_one(Output)

    def read_output(self) -> bool:
        """Show what the program has printed; whether it has."""
        if self.debuggee is None:
            return False
        came = False
        for stream, look in ((self.debuggee.stdout, STDOUT), (self.debuggee.stderr, STDERR)):
            found = stream.read()
            if found:
                came = True
                self.output.add_bytes(found, look)
        return came

    def answer(self, text: str, look: str = ANSWER) -> None:
        """Show an answer beside what the program prints, and have it seen."""
        self.output.add(f"{text}\n", look)
        self._arrangement.show_besides("output")

    # Asking.

    def ask(
        self, question: Callable[[Client], Any], then: Callable[[Any], None] | None = None
    ) -> None:
        """Ask something, and have the answer taken."""
        self.link.ask(question, then or _nothing)

    def ask_thread(
        self, question: Callable[[Client, int], Any], then: Callable[[Any], None]
    ) -> None:
        """Ask something of the stopped thread."""
        if self.is_stopped() and self.stop is not None:
            thread = self.stop.thread
            self.ask(lambda client: question(client, thread), then)

    def ask_quietly(self, question: Callable[[Client], Any], then: Callable[[Any], None]) -> None:
        """Ask what nobody misses where the program has gone on meanwhile."""

        def quietly(client: Client) -> Any:
            try:
                return question(client)
            except RefusedError:
                return None

        def take(answer: Any) -> None:
            if answer is not None:
                then(answer)

        self.ask(quietly, take)

    def is_stopped(self) -> bool:
        """Whether there is a stop to do something at; where there is none, that is said."""
        if self.stop is None:
            over = "has ended" if self.is_over else "runs; ctrl+c pauses it"
            self._board.notify(f"The program {over}.")
        return self.stop is not None

    def _show_refusal(self, sentence: str) -> None:
        if not self.is_over:
            self._board.screen.notify(sentence, severity="warning", markup=False)


def _nothing(_answer: object) -> None:
    pass
