"""The lines around the panels: what is open, where the playhead is, which panel is shown."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from rich.text import Text
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from agviz.traces.inferred import is_observed, mark_of
from agviz.traces.rows import GraphTaskStatus
from agviz.tui.describe import SHORT
from agviz.tui.text import PLAYHEAD
from agviz.words.units import milliseconds, plural, size

if TYPE_CHECKING:
    from textual import events

    from agviz.tui.model import View

_BAR = 10
_BETWEEN = " · "


class Bar(Widget):
    """A line of facts, the most important first; what has no room is left out as a whole."""

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self.view: View | None = None
        self._drawn = Text()

    def show(self, view: View) -> None:
        """Draw the facts of ``view``."""
        self.view = view
        before = self._drawn
        if self.render() != before:
            self.refresh()

    def start(self, view: View) -> Text:
        """What is before the facts."""
        raise NotImplementedError

    def facts(self, view: View) -> list[tuple[int, str]]:
        """In order of place; the number says which is left out first: the highest."""
        raise NotImplementedError

    def render(self) -> Text:
        """The facts that have room."""
        self._drawn = Text("agviz", style="bold") if self.view is None else self._line(self.view)
        return self._drawn

    def _line(self, view: View) -> Text:
        line, facts = self.start(view), self.facts(view)
        while facts:
            text = _BETWEEN.join(fact for _, fact in facts)
            if len(facts) == 1 or line.cell_len + Text(text).cell_len <= self.content_size.width:
                line.append(text)
                break
            facts.remove(max(facts))
        line.no_wrap, line.overflow = True, "ellipsis"
        return line


class Title(Bar):
    """File, graph task and how it ended; a click lists the passes."""

    def start(self, view: View) -> Text:
        """The program and the file."""
        return Text.assemble(("agviz", "bold"), f"  {PurePath(view.recording.path).name}  ")

    def facts(self, view: View) -> list[tuple[int, str]]:
        """About the graph task."""
        recording, task = view.recording, view.recording.task
        call = "backward" if task.accumulate_grad else "grad"
        failed = task.status is GraphTaskStatus.FAILED
        facts = [
            (0, f"{call} #{recording.number}"),
            (1, f"✗ {task.error}" if failed else _status(view)),
            (3, plural(recording.nodes, "node")),
            (4, plural(recording.event_count, "event")),
        ]
        if is_observed(recording.meta):
            facts.insert(2, (1, "~ native engine, observed"))
        if task.withdrawn_seq is not None:
            facts.insert(2, (0, "inference withdrawn"))
        if recording.first_nonfinite is not None:
            facts.insert(2, (2, "! non-finite"))
        if view.follows:
            facts.insert(1, (-1, "following"))
        elif recording.meta.end_ns is None and not recording.is_over:
            facts.insert(1, (-1, "F follows"))
        if recording.trouble:
            facts.insert(1, (-1, f"✗ {recording.trouble}"))
        if recording.siblings > 1:
            facts.append((5, "p lists them"))
        return facts

    async def on_click(self, event: events.Click) -> None:
        """List the passes."""
        event.stop()
        await self.run_action("screen.command('run.show')")


def _status(view: View) -> str:
    """How it ended, or that it runs; what a stop holds does not run."""
    status = view.recording.task.status
    is_held = status is GraphTaskStatus.RUNNING and view.stopped_threads
    return "stopped" if is_held else status.value


class Status(Bar):
    """Where the playhead is."""

    def start(self, view: View) -> Text:
        """How far the graph task has come."""
        filled = round(view.moment.position / max(1, view.recording.event_count) * _BAR)
        done, to_do = "━" * filled, "─" * (_BAR - filled)
        return Text.assemble((f"{PLAYHEAD} {done}", "bold"), (to_do, "dim"), " ")

    def facts(self, view: View) -> list[tuple[int, str]]:
        """About the playhead."""
        recording, moment = view.recording, view.moment
        time = (moment.time_ns or recording.task.begin_ns) - recording.task.begin_ns
        what = "nothing has happened yet"
        if moment.event is not None:
            what = SHORT[type(moment.event)]
            if moment.node is not None:
                what += f" {recording.label(moment.node)}"
        facts = [
            (0, f"event {moment.position:,}/{recording.event_count:,}"),
            (3, f"{milliseconds(time)} ms"),
            (1, what),
            (4, f"{moment.executed:,}/{recording.nodes:,} done"),
            (5, f"{mark_of(recording.meta)}{size(moment.live_bytes)} in buffers"),
        ]
        if view.thread is not None:
            facts.insert(1, (2, f"only T{view.thread}"))
        if view.found is not None and view.found[0] == view.selected:
            facts.insert(1, (0, view.found[1]))
        if view.why:
            facts.insert(1, (0, view.why))
        if view.busy:
            facts.insert(0, (-1, view.busy))
        return facts


class PanelTab(Static):
    """The name of a panel; a click chooses it."""

    class Chosen(Message):
        """The user wants this panel."""

        def __init__(self, panel: str) -> None:
            super().__init__()
            self.panel = panel

    def __init__(self, number: int, panel: str, heading: str) -> None:
        super().__init__(Text(f"{number} {heading}"), classes="tab", id=f"tab-{panel}")
        self._panel = panel

    def on_click(self, event: events.Click) -> None:
        """Choose the panel."""
        event.stop()
        self.post_message(self.Chosen(self._panel))
