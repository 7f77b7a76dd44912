"""Each ReadyQueue's content at the playhead, in the order in which it would be popped."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from agviz.traces.inferred import WITHDRAWN, mark_of
from agviz.tui.panels.line_list import LineList
from agviz.tui.text import Line, Span, left, right, tail
from agviz.words.labels import queue_label
from agviz.words.units import plural

if TYPE_CHECKING:
    from agviz.traces.rows import QueueContents, QueuedTask
    from agviz.tui.model import View


class Queues(LineList):
    """A heading per queue, and below it a line per NodeTask."""

    HEADING = "Queues"
    DRAWS = ("recording", "moment")
    HAS_HEADER = True
    EMPTY = "No ReadyQueue has been used yet."
    HELP = (
        "Each ReadyQueue at the playhead, the NodeTask that is popped next at the top. torch pops"
        " the task of the deepest reentrant call first, then the node with the highest sequence"
        " number; AccumulateGrad comes before all others."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "show_node", "Show node", show=False, id="queues.show-node"),
    ]

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._queues: list[QueueContents] = []
        self._headings: list[int] = []
        """The line on which each queue begins."""

    def take_over(self, view: View, before: View | None) -> None:
        """Draw the queues of ``view``."""
        if before is None or before.moment is not view.moment:
            self._queues = view.moment.queues
            lines = [1 + max(1, len(queue.tasks)) for queue in self._queues]
            self._headings = list(accumulate(lines, initial=0))[:-1]
            self.line_count = sum(lines)
            waiting = sum(len(queue.tasks) for queue in view.moment.queues)
            more = "" if view.moment.state.knows_all else ", of the recorded nodes"
            tasks = mark_of(view.recording.meta) + plural(waiting, "task")
            is_known = all(queue.is_known for queue in view.moment.queues)
            self.subtitle((tasks if is_known else WITHDRAWN) + more)

    def header(self, width: int) -> Line:
        """Names of the columns."""
        name = self._name_width(width)
        place = left("module", width - name - 23)
        text = f" next {left('node', name)} {right('depth', 5)} {right('seq nr', 8)}  {place}"
        return [Span(text, "muted")]

    def line(self, index: int, width: int) -> Line:
        """A queue's heading, one of its tasks, or that it has none."""
        queue, place = self._at(index)
        if place < 0:
            server = "" if queue.thread is None else f" T{queue.thread}"
            depth = f"{mark_of(self.shown.recording.meta)}depth {len(queue.tasks):,}"
            if not queue.is_known:
                depth = f"depth {WITHDRAWN}"
            return [Span(f" {queue_label(queue.queue)}{server}  ", "heading"), Span(depth, "muted")]
        if not queue.tasks:
            return [Span("      empty" if queue.is_known else "      not known", "muted")]
        return self._node_task(queue.tasks[place], place, width)

    def cursor_moved(self) -> None:
        """Another node is looked at, if the cursor is on one of this graph task."""
        node = self._node_at_cursor()
        if node is not None:
            self.look_at_node(node)

    def action_show_node(self) -> None:
        """Look at the node under the cursor."""
        if self._node_at_cursor() is None:
            self.notify("There is no node of this graph task on this line.")
        self.cursor_moved()

    def _node_at_cursor(self) -> int | None:
        if self.view is None or not self._queues:
            return None
        queue, place = self._at(self.cursor)
        if place < 0 or not queue.tasks:
            return None
        task = queue.tasks[place]
        own = task.graph_task == self.view.recording.key.graph_task
        return task.node if own and task.node >= 0 else None

    def _at(self, line: int) -> tuple[QueueContents, int]:
        """The queue of a line, and the place of its task; -1: the heading."""
        index = bisect_right(self._headings, line) - 1
        return self._queues[index], line - self._headings[index] - 1

    def _name_width(self, width: int) -> int:
        return min(34, max(14, (width - 23) // 2))

    def _node_task(self, task: QueuedTask, place: int, width: int) -> Line:
        recording = self.shown.recording
        name_width = self._name_width(width)
        number = Span(f"{place + 1:>5} ", "number")
        if task.node < 0:
            return [number, Span("wake-up or shutdown", "muted")]
        if task.graph_task != recording.key.graph_task:
            text = f"node {task.node} of graph task {task.graph_task}"
            return [number, Span(left(text, width - 6), "muted")]
        state = self.shown.moment.state
        number_of = state.sequence_nr(task.graph_task, task.node)
        sequence = "leaf" if number_of is None else f"{number_of:,}"
        used = name_width + 15 + max(8, len(sequence))
        return [
            number,
            Span(left(recording.label(task.node), name_width), "ready"),
            Span(" " + right(str(state.depth(task.graph_task)), 5), "number"),
            Span(f" {sequence:>8}", "number"),
            Span("  " + tail(recording.place(task.node), width - used), "place"),
        ]
