"""The list of all events of a graph task; only the pages on the screen are ever read."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from textual.message import Message

from agviz.tui.describe import SHORT, describe, is_bad
from agviz.tui.model import PAGE
from agviz.tui.panels.line_list import LineList
from agviz.tui.text import PLAYHEAD, Line, Span, count, left, milliseconds, right
from agviz_engine import events as e

if TYPE_CHECKING:
    from agviz.tui.model import View

_MOST_PAGES: Final = 100

_SHORT_KIND: Final = 11
_LONG_KIND: Final = 23

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
    EMPTY = "No events."
    HELP = (
        "Everything the engine did, in order: the number of the event, its time in ms since the"
        " graph task began, the thread, what happened. ▶ marks the event the playhead stands"
        " behind: it and all above it have happened."
    )

    class PageWanted(Message):
        """Events ``page * PAGE`` and following are on the screen and not known."""

        def __init__(self, page: int) -> None:
            super().__init__()
            self.page = page

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._pages: OrderedDict[int, list[e.Event]] = OrderedDict()
        self._asked: set[int] = set()

    def show(self, view: View) -> None:
        """Draw ``view``; the cursor goes with the playhead when that has moved."""
        before = self.view
        super().show(view)
        if before is None or not view.recording.is_same(before.recording):
            self._pages.clear()
            self._asked.clear()
        if self.line_count != view.recording.event_count:
            self._forget_last_page()
            self.line_count = view.recording.event_count
        if before is None or before.moment is not view.moment:
            self.put_cursor(max(0, view.moment.position - 1))
        self.subtitle(f"{view.moment.position:,} of {count(self.line_count, 'event')}")

    def _forget_last_page(self) -> None:
        """It was not full, and now there is more."""
        last = self.line_count // PAGE
        self._pages.pop(last, None)
        self._asked.discard(last)

    def add_page(self, page: int, found: list[e.Event]) -> None:
        """Show the events of ``page``."""
        self._asked.discard(page)
        self._pages[page] = found
        while len(self._pages) > _MOST_PAGES:
            self._pages.popitem(last=False)
        self.refresh()

    def event_at(self, index: int) -> e.Event | None:
        """Event ``index``, or None where its page is not here yet (it is asked for then)."""
        page = index // PAGE
        found = self._pages.get(page)
        if found is None:
            if page not in self._asked:
                self._asked.add(page)
                self.post_message(self.PageWanted(page))
            return None
        self._pages.move_to_end(page)
        return found[index % PAGE] if index % PAGE < len(found) else None

    def header(self, width: int) -> Line:
        """Names of the columns."""
        number = self._number_width()
        text = f" {right('event', number)} {right('ms', 10)} {'T':<4}"
        return [Span(text + left("what", width - len(text)), "muted")]

    def line(self, index: int, width: int) -> Line:
        """An event."""
        here = index == self.shown.moment.position - 1
        number = right(f"{index + 1:,}", self._number_width())
        start = [Span(PLAYHEAD if here else " ", "playhead"), Span(number, "number")]
        event = self.event_at(index)
        if event is None:
            return [*start, Span(" …", "muted")]
        recording = self.shown.recording
        happened = index < self.shown.moment.position
        on_thread = self.shown.thread in {None, event.thread}
        kind_width = _kind_width(width)
        kind = type(event).__name__ if kind_width > _SHORT_KIND else SHORT[type(event)]
        look = "failed" if is_bad(event) else _LOOKS.get(type(event), "heading")
        text = describe(event, recording)
        used = self._number_width() + 17 + kind_width
        time = milliseconds(event.time_ns - recording.task.begin_ns)
        return [
            *start,
            Span(f" {right(time, 10)} {left(f'T{event.thread}', 4)}", "number"),
            Span(left(kind, kind_width), look if on_thread else "muted"),
            Span(left(text, width - used), "name" if happened and on_thread else "muted"),
        ]

    def cursor_moved(self) -> None:
        """Look at the node of the event under the cursor."""
        event = self.event_at(self.cursor) if self.line_count else None
        node = getattr(event, "node", -1)
        if node >= 0:
            self.post_message(self.NodeSelected(node))

    def _number_width(self) -> int:
        return max(5, len(f"{self.line_count:,}"))


def _kind_width(width: int) -> int:
    return _LONG_KIND if width >= 76 else _SHORT_KIND
