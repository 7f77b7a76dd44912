"""The screen of a flow: a gradient from the loss to a parameter, and the parameter over the run."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, ClassVar, Final

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Static

from agviz.tui.flow_reading import place_of, read_flow, read_history
from agviz.tui.hints import Hints
from agviz.tui.panels.flow import FlowHistory, FlowList, FlowSentence
from agviz.tui.panels.panel import Panels
from agviz.tui.screens.answer import show_answer
from agviz.tui.screens.help import Help, keys_of
from agviz.tui.stack import is_open, leave
from agviz.words.safe import clean
from agviz.words.units import ordinal, plural

if TYPE_CHECKING:
    from textual.app import ComposeResult

    from agviz.analysis.flow import FlowReading, FlowTarget, FollowedGradient
    from agviz.tui.flow_reading import FlowRead, HistoryRead, StepPlace
    from agviz.tui.model import LoadedPass
    from agviz.tui.reader_thread import ReaderThread

_PASS: Final = Binding.Group("Pass", compact=True)
_HISTORY: Final = 5
_MOST_SAID: Final = 6
"""Lines of the sentence, with its border."""


class FlowScreen(Screen["StepPlace | None"]):
    """Opens over another screen; its result is the node that the user wants to see.

    Args:
        recording: the pass that is open.
        reader: the thread that reads the file.
        target: where the gradient is followed to.
    """

    AUTO_FOCUS = "#flow-list"

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("h,left", "pass(-1)", "Pass before", group=_PASS, id="flow.previous-pass"),
        Binding("l,right", "pass(1)", "Next pass", group=_PASS, id="flow.next-pass"),
        Binding("w", "why", "Why", id="flow.why"),
        Binding("x", "finding", "Where", id="flow.finding"),
        Binding("escape,L", "back", "Back", show=False, id="flow.back"),
        Binding("y", "copy", "Copy", show=False, id="flow.copy"),
        Binding("question_mark,f1", "help", "Help", id="flow.help"),
        Binding("q", "app.quit", "Quit", id="flow.quit"),
    ]

    def __init__(self, recording: LoadedPass, reader: ReaderThread, target: FlowTarget) -> None:
        super().__init__()
        self._recording = recording
        self._reader = reader
        self.target = target
        self._reading: FlowReading | None = None
        self._history: HistoryRead | None = None
        self.flow: FollowedGradient | None = None
        """What is shown; None: it is being read."""
        self._from_end: int | None = None
        """Where the cursor is to be, counted from the end; None: where it is."""

    def compose(self) -> ComposeResult:
        """Title, what is said, the way, the run, hints."""
        yield Static("", id="flow-title", markup=False)
        with Panels(id="flow"):
            yield FlowSentence(id="flow-sentence")
            yield FlowList(id="flow-list")
            yield FlowHistory(id="flow-history")
        yield Hints(id="hints")

    def on_mount(self) -> None:
        """Read."""
        self._read()
        if self.target.parameter:
            self._ask_history()
        else:
            self.query_one(FlowHistory).display = False

    def on_resize(self) -> None:
        """Share out the room."""
        self._fit()

    # What the reader thread found.

    def _read(self) -> None:
        """Begin with another flow."""
        self.flow = self._from_end = None
        self.query_one(FlowSentence).show_finding(None, "Reading the gradients …")
        self._show_title()
        self._reader.ask(read_flow(self.target, self._reading), self._take_flow)

    def _take_flow(self, message: FlowRead) -> None:
        """Show it, or read on, unless another one is wanted by now."""
        if not is_open(self) or message.reading.target != self.target:
            return
        self._reading, flow = message.reading, message.flow
        if flow is None:
            said = f"Reading the gradients … {message.share:.0%}"
            self.query_one(FlowSentence).show_finding(None, said)
            self._reader.ask(read_flow(self.target, self._reading), self._take_flow)
            return
        is_first, self.flow = self.flow is None, flow
        more = ""
        if flow.meetings:
            places = plural(flow.meetings, "node")
            more = f"Into {places} of this way several gradients lead (⊕): it is along the largest."
            if flow.steps.has_choice:
                more = "This way is not along the largest gradients: another one was chosen (⊕)."
        rows = self.query_one(FlowList)
        rows.show_flow(flow)
        rows.subtitle(plural(len(flow.steps), "node"))
        self.query_one(FlowSentence).show_finding(flow.finding, more)
        if self._from_end is not None:
            rows.put_cursor(len(flow.steps) - self._from_end)
            self._from_end = None
        elif is_first:
            place = flow.finding.place
            rows.put_cursor(max(0, len(flow.steps) - 1) if place is None else place)
        self._fit()

    def _ask_history(self) -> None:
        before = None if self._history is None else self._history.history
        question = read_history(self.target.parameter, self.target.graph_task, before)
        self._reader.ask(question, self._take_history)

    def _take_history(self, message: HistoryRead) -> None:
        """Draw it, and read on."""
        if not is_open(self):
            return
        self._history = message
        self._show_history()
        if not message.is_read:
            self._ask_history()

    def _show_history(self) -> None:
        known = self._history
        if known is None:
            return
        panel = self.query_one(FlowHistory)
        place = known.history.place(self.target.graph_task)
        panel.show_history(known.graph_tasks, known.norms, place, is_read=known.is_read)
        panel.border_title = Text(f"{clean(self.target.parameter)} over the passes of the run")
        self._show_title()

    # What the user does.

    def action_pass(self, by: int) -> None:
        """Show the flow in another pass."""
        known = self._history
        if known is None:
            self.notify("Only the gradient of a parameter is followed over the passes of a run.")
            return
        place = known.history.place(self.target.graph_task)
        wanted = (0 if place is None else place) + by
        if not 0 <= wanted < len(known.graph_tasks):
            self.notify("This is the last pass." if by > 0 else "This is the first pass.")
            return
        self.target = self.target._replace(graph_task=known.graph_tasks[wanted])
        self._read()
        self._show_history()

    def action_finding(self) -> None:
        """Put the cursor where something is unusual."""
        place = None if self.flow is None else self.flow.finding.place
        if place is None:
            self.notify("Nothing on this way is unusual.")
        else:
            self.query_one(FlowList).put_cursor(place)

    def on_flow_list_other_way_wanted(self) -> None:
        """Follow another gradient into the node under the cursor."""
        if self.flow is not None:
            cursor = self.query_one(FlowList).cursor
            self._from_end = len(self.flow.steps) - cursor
            question = read_flow(self.target, self._reading, cursor)
            self._reader.ask(question, self._take_flow)

    def on_flow_list_node_opened(self) -> None:
        """Look at the node in its pass."""
        step = self.query_one(FlowList).step
        if step is not None:
            self._reader.ask(place_of(step), self._open)

    def _open(self, place: StepPlace) -> None:
        leave(self, place)

    def action_why(self) -> None:
        """Explain the gradient of the parameter, or what is unusual about the pass."""
        show_answer(self, self._reader, self.target.parameter, self.target.graph_task)

    def action_back(self) -> None:
        """Go back."""
        self.dismiss(None)

    def action_copy(self) -> None:
        """Copy the line under the cursor."""
        text = self.query_one(FlowList).copy_text()
        if text:
            self.app.copy_to_clipboard(text)
            self.notify(f"Copied: {text}", timeout=3, markup=False)

    def action_help(self) -> None:
        """Explain the columns and the keys."""
        of_list, everywhere = keys_of(self, self.query_one(FlowList))
        self.app.push_screen(Help("Flow", FlowList.HELP, [("Keys", of_list + everywhere)], ()))

    # Drawing.

    def _fit(self) -> None:
        """Give what is said the lines that it needs."""
        sentence = self.query_one(FlowSentence)
        lines = len(sentence.lines_in(max(10, self.size.width - 3)))
        sentence.styles.height = min(lines + 2, _MOST_SAID)
        self.query_one(FlowHistory).styles.height = _HISTORY

    def _show_title(self) -> None:
        line = Text.assemble(("agviz", "bold"), f"  {clean(PurePath(self._recording.path).name)}  ")
        line.no_wrap, line.overflow = True, "ellipsis"
        facts = [
            f"flow to {clean(self.target.parameter)}" if self.target.parameter else "flow to a node"
        ]
        number = f"pass #{self.target.graph_task}"
        known = self._history
        place = None if known is None else known.history.place(self.target.graph_task)
        if known is not None and place is not None:
            number += f", the {ordinal(place + 1)} of {len(known.graph_tasks):,}"
        facts.append(number)
        line.append(" · ".join(facts))
        self.query_one("#flow-title", Static).update(line)
