"""All that is known about the selected node."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType
from textual.message import Message

from agviz.tui.inspection import inspect
from agviz.tui.panels.line_list import LineList
from agviz.tui.text import Line, Span

if TYPE_CHECKING:
    from agviz.tui.model import View
    from agviz.tui.tensor_lines import Entry


class Inspector(LineList):
    """Facts about a node, and links to its neighbours."""

    HEADING = "Inspector"
    DRAWS = ("recording", "moment", "selected", "story", "stop_tensors", "stopped_threads")
    EMPTY = "No node is selected yet: press n, or choose one in the list of nodes."
    HELP = (
        "The selected node: its state at the playhead, the gradients it received and gave,"
        " its hooks, and its edges.\n\n"
        "Enter on an edge goes to the node at its other end; on ↓ into a backward pass that the"
        " node began (a reentrant call); on ↑ back to the node that began this one. Where a program"
        " is stopped at the node, its tensors are shown as they are now; enter on one prints a"
        " part of it."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "follow", "Follow", id="inspector.follow"),
    ]

    class CommandBegun(Message):
        """The user wants to say something about what is in a line."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._entries: list[Entry] = []
        self._node: int | None = None

    def take_over(self, view: View, before: View | None) -> None:
        """Draw the selected node of ``view``, once it was read; until then what was drawn stays."""
        node, story = view.selected, view.story
        if node is None or story is None or story.node.index != node:
            if node is None or before is None or not view.recording.is_same(before.recording):
                self._entries = []
                self.line_count = 0
            return
        self._entries = inspect(view, story, max(20, self.inner_width - 2))
        self.line_count = len(self._entries)
        if self._node != node:
            self._node = node
            self.put_cursor(0)
        self.subtitle(view.recording.label(node))

    def line(self, index: int, width: int) -> Line:
        """A line of the description."""
        del width
        return [Span(" "), *self._entries[index].line]

    def on_resize(self) -> None:
        """Wrap anew."""
        if self.view is not None:
            self.take_over(self.view, self.view)
        super().on_resize()

    def action_follow(self) -> None:
        """Go where the line under the cursor leads, or look at its tensor."""
        entry = self._entries[self.cursor] if self._entries else None
        if entry is not None and entry.node is not None:
            self.look_at_node(entry.node)
        elif entry is not None and entry.place is not None:
            self.post_message(self.ElsewherePicked(entry.place.seq, entry.place.graph_task))
        elif entry is not None and entry.command:
            self.post_message(self.CommandBegun(entry.command))
        else:
            self.notify("This line is no edge: put the cursor on a line with →, ←, ↓ or ↑.")
