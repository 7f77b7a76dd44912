"""What every part of a live session builds on: it knows where the program has stopped."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from agviz.debugger.client import RefusedError
from agviz.tui.link import Link, NoticeThread
from agviz.tui.panels.output import ANSWER, Output
from agviz.tui.prompt import Prompt
from agviz.tui.session import Session
from agviz.words.health import nonfinite
from agviz.words.shapes import write_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from agviz.debugger.client import Client, Stopped
    from agviz.debugger.launch import Debuggee
    from agviz.measure.values import Health
    from agviz.tui.link import Refused, Replied
    from agviz.tui.model import Key, Mark, OtherTasks, StopTensors, View
    from agviz.tui.reader_thread import ReaderThread

_NO_MARKS: Final[Mapping[int, Mark]] = {}


class Linked(Session):
    """A session with a program behind it.

    Args:
        paths: its trace file.
        reader: the thread that reads it.
        client: speaks with the program.
        debuggee: the program, where it was started from here.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        reader: ReaderThread,
        *,
        client: Client,
        debuggee: Debuggee | None,
    ) -> None:
        super().__init__(paths, reader)
        self.link = Link(client, self.post_message)
        self.notices_thread = NoticeThread(client, self.post_message)
        self.debuggee = debuggee
        self.knows_lines = client.hello.lines
        self.stops: dict[int, Stopped] = {}
        """Where threads have stopped, by thread; the last that stopped is the last."""
        self.looked_at: int | None = None
        """The thread whose stop is looked at; None: the one that stopped last."""
        self.is_over = False
        self.python_runs = 0
        """Inputs of Python that were sent and have not been answered."""
        self.marks: Mapping[int, Mark] = _NO_MARKS
        self.marked: Key | None = None
        """The graph task that the marks are of."""
        self.stop_tensors: StopTensors | None = None
        self.other_tasks: OtherTasks | None = None
        self.thread: int | None = None
        """The thread by whose nodes one goes, whichever graph task is shown; None: any."""

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
    def output(self) -> Output:
        """What the program prints."""
        return self.query_one(Output)

    # What is shown beside the recording.

    def look_at(self, node: int | None, view: View) -> None:
        """Show ``view``, with what is known of the program."""
        super().look_at(node, self.alive(view))

    def only(self, thread: int | None) -> None:
        """Go by one thread's nodes only, in whichever graph task; None: by all."""
        self.thread = thread
        super().only(thread)

    def alive(self, view: View) -> View:
        """``view`` with what is known of the program."""
        key, others = view.recording.key, self.other_tasks
        return replace(
            view,
            is_live=True,
            thread=self.thread,
            marks=self.marks if self.marked == key else _NO_MARKS,
            stop_tensors=self.stop_tensors,
            stopped_threads=frozenset(self.stops),
            other_tasks=others if others is not None and others.key == key else None,
        )

    def show_alive(self) -> None:
        """Draw what is known of the program anew."""
        if self.view is not None:
            self.view = self.alive(self.view)

    # Asking.

    def ask_program(
        self, question: Callable[[Client], Any], then: Callable[[Any], None] | None = None
    ) -> None:
        """Ask the program something, and have the answer taken."""
        self.link.ask(question, then or _nothing)

    def ask_thread(
        self, question: Callable[[Client, int], Any], then: Callable[[Any], None]
    ) -> None:
        """Ask something of the stopped thread."""
        if self.is_stopped() and self.stop is not None:
            thread = self.stop.thread
            self.ask_program(lambda client: question(client, thread), then)

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

        self.ask_program(quietly, take)

    def on_replied(self, message: Replied) -> None:
        """A question was answered."""
        message.then(message.answer)

    def on_refused(self, message: Refused) -> None:
        """It could not be."""
        if not self.is_over:
            self.notify(message.sentence, severity="warning", markup=False)

    def is_stopped(self) -> bool:
        """Whether there is a stop to do something at; where there is none, that is said."""
        if self.stop is None:
            over = "has ended" if self.is_over else "runs; ctrl+c pauses it"
            self.notify(f"The program {over}.")
        return self.stop is not None

    def answer(self, text: str) -> None:
        """Show an answer beside what the program prints."""
        self.output.add(f"{text}\n", ANSWER)
        self.show_output()

    def show_output(self) -> None:
        """Have the output seen where only one panel is."""
        if not (self.has_class("-narrow") or self.has_class("-low")):
            return
        if self.query_one(Prompt).has_class("-open"):
            self._choose("output")  # whoever types keeps the focus, and comes here afterwards
            self._prompted_from = self.output
        else:
            self.action_show_panel("output")


def _nothing(_answer: object) -> None:
    pass


def in_words(health: Health) -> str:
    """What was measured, on one line."""
    facts = [f"{write_shape(health.shape, '?')} {health.dtype}"]
    if found := nonfinite(health.nan, health.posinf, health.neginf):
        facts.append(found)
    if health.norm is not None:
        facts.append(f"{health.min:.4g} … {health.max:.4g}, norm {health.norm:.4g}")
    return ", ".join(facts)
