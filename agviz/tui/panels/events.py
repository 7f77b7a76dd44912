"""The list of all events of a graph task; only the pages on the screen are ever read."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from textual.message import Message

from agviz.traces.inferred import MARK, is_inferred, mark_of
from agviz.tui.describe import SHORT, describe, is_bad
from agviz.tui.model import PAGE
from agviz.tui.panels.line_list import LineList
from agviz.tui.text import PLAYHEAD, Line, Span, left, right
from agviz.words.units import milliseconds, plural
from agviz_engine import events as e

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz.tui.model import View
    from agviz.tui.reader_thread import Filter, PageRead

_MOST_PAGES: Final = 100

_LEAST_TIME: Final = 10
_KIND: Final = 11

_LOOKS: Final[dict[type[e.Event], str]] = {
    e.NodeStarted: "running",
    e.NodeFinished: "done",
    e.NodeSkipped: "skipped",
    e.QueuePush: "ready",
    e.QueuePop: "ready",
    e.DependencyDecremented: "waiting",
    e.GradientAccumulated: "waiting",
}


class Events(LineList):
    """One line per event; it asks for pages it lacks and shows them when they come."""

    HEADING = "Events"
    DRAWS = ("recording", "moment", "thread")
    HAS_HEADER = True
    EMPTY = "No events; :filter lists all."
    HELP = (
        "Everything the engine did, in order: the number of the event, its time in ms since the"
        " graph task began, the thread, what happened. ▶ marks the event the playhead is"
        " behind: it and all above it have happened.\n\n"
        "f asks for a filter: kinds of events, nonfinite (checks that found something), a thread"
        " (T1), a node (#12, or . for the selected one);"
        " :filter without words lists all again."
    )

    class PageWanted(Message):
        """A page of events is on the screen and not known."""

        def __init__(self, page: int, which: Filter | None) -> None:
            super().__init__()
            self.page = page
            self.filter = which

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._pages: OrderedDict[int, list[tuple[int, e.Event]]] = OrderedDict()
        """Positions and events."""
        self._asked: set[int] = set()
        self._filter: Filter | None = None
        self._seqs: Sequence[int] = ()
        """Of the events that the filter lets through."""

    def take_over(self, view: View, before: View | None) -> None:
        """Draw ``view``; the cursor goes with the playhead when that has moved."""
        is_new = before is None or not view.recording.is_same(before.recording)
        if is_new:
            self.filter(None)
        elif self._filter is None and self.line_count != view.recording.event_count:
            last = self.line_count // PAGE  # it was not full, and now there is more
            self._pages.pop(last, None)
            self._asked.discard(last)
            self.line_count = view.recording.event_count
        if is_new or (before is not None and before.moment is not view.moment):
            self._go_to_playhead()
        self._show_position()

    def filter(self, which: Filter | None) -> None:
        """List only some events, once they are found; None: all."""
        self._filter, self._seqs = which, ()
        self._pages.clear()
        self._asked.clear()
        if self.view is not None:
            self.line_count = self.view.recording.event_count if which is None else 0
            self._go_to_playhead()
            self._show_position()
        self.redraw()

    def show_filtered(self, which: Filter, seqs: Sequence[int]) -> None:
        """List the events that were found."""
        if which == self._filter:
            self._seqs = seqs
            self.line_count = len(seqs)
            self._go_to_playhead()
            self._show_position()
            self.redraw()

    def go_to(self, offset: int, seq: int) -> None:
        """Put the cursor on an event, or on the last one before it that is listed.

        Args:
            offset: number of events of the graph task before it.
            seq: of the event.
        """
        self.put_cursor(offset if self._filter is None else bisect_right(self._seqs, seq) - 1)

    @property
    def position(self) -> int | None:
        """Number of events up to the one under the cursor; None: that is not known yet."""
        found = self._at(self.cursor) if self.line_count else None
        if found is not None:
            return found[0] + 1
        return self.cursor + 1 if self._filter is None and self.line_count else None

    def _go_to_playhead(self) -> None:
        moment = self.shown.moment
        seq = -1 if moment.event is None else moment.event.seq
        self.go_to(max(0, moment.position - 1), seq)

    def _show_position(self) -> None:
        view = self.shown
        text = f"{view.moment.position:,} of {plural(view.recording.event_count, 'event')}"
        if self._filter is not None:
            text = f"{len(self._seqs):,} “{self._filter.text}”, {text}"
        self.subtitle(text)

    def add_page(self, read: PageRead) -> None:
        """Show a page of events."""
        if read.filter != self._filter:
            return
        self._asked.discard(read.page)
        self._pages[read.page] = list(zip(read.positions, read.events, strict=False))
        while len(self._pages) > _MOST_PAGES:
            self._pages.popitem(last=False)
        self.redraw()

    def event_at(self, index: int) -> e.Event | None:
        """The event of a line, or None where its page is not here yet (it is asked for then)."""
        found = self._at(index)
        return None if found is None else found[1]

    def on_idle(self) -> None:
        """Have the events above and below at hand, too."""
        if self.line_count and self.display:
            self._at(max(0, self.scroll_offset.y - PAGE // 2))
            self._at(min(self.line_count - 1, self.scroll_offset.y + PAGE))

    def _at(self, index: int) -> tuple[int, e.Event] | None:
        page = index // PAGE
        found = self._pages.get(page)
        if found is None:
            if page not in self._asked:
                self._asked.add(page)
                self.post_message(self.PageWanted(page, self._filter))
            return None
        self._pages.move_to_end(page)
        return found[index % PAGE] if index % PAGE < len(found) else None

    def header(self, width: int) -> Line:
        """Names of the columns."""
        number = self._number_width()
        text = f" {right('event', number)} {right('ms', self._time_width())} {'T':<4}"
        return [Span(text + left("what", width - len(text)), "muted")]

    def line(self, index: int, width: int) -> Line:
        """An event."""
        found = self._at(index)
        if found is None:
            number = f"{index + 1:,}" if self._filter is None else ""
            return [Span(f" {right(number, self._number_width())}", "number"), Span(" …", "muted")]
        position, event = found
        here = position == self.shown.moment.position - 1
        number = right(f"{position + 1:,}", self._number_width())
        start = [Span(PLAYHEAD if here else " ", "playhead"), Span(number, "number")]
        recording = self.shown.recording
        happened = position < self.shown.moment.position
        on_thread = self.shown.thread in {None, event.thread}
        kind_width = _KIND + len(mark_of(recording.meta))
        kind = SHORT[type(event)]
        if is_inferred(recording.meta, event):
            kind = MARK + kind
        look = "failed" if is_bad(event) else _LOOKS.get(type(event), "heading")
        text = describe(event, recording)
        used = self._number_width() + self._time_width() + 7 + kind_width
        time = milliseconds(event.time_ns - recording.task.begin_ns)
        return [
            *start,
            Span(f" {right(time, self._time_width())} {left(f'T{event.thread}', 4)}", "number"),
            Span(left(kind, kind_width), look if on_thread else "muted"),
            Span(left(text, width - used), "name" if happened and on_thread else "muted"),
        ]

    def cursor_moved(self) -> None:
        """Look at the node of the event under the cursor."""
        event = self.event_at(self.cursor) if self.line_count else None
        node = getattr(event, "node", -1)
        if node >= 0:
            self.look_at_node(node)

    def _time_width(self) -> int:
        if self.view is None:
            return _LEAST_TIME
        begin, end = self.shown.span_ns
        return max(_LEAST_TIME, len(milliseconds(end - begin)))

    def _number_width(self) -> int:
        return max(5, len(f"{self.shown.recording.event_count:,}") if self.view else 0)
