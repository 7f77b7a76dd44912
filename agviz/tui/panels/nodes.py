"""The list of nodes in execution order, each with its state at the playhead."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding, BindingType

from agviz.tui.folding import Group, Row, groups, visible
from agviz.tui.model import State
from agviz.tui.panels.line_list import LineList
from agviz.tui.text import PLAYHEAD, Line, Span, count, duration, left, right, shape, tail

if TYPE_CHECKING:
    from agviz.traces.rows import NodeRow
    from agviz.tui.model import View


class Nodes(LineList):
    """One line per node, or per folded group of neighbours."""

    HEADING = "Nodes"
    DRAWS = ("recording", "moment", "thread")
    EMPTY = "No nodes: the dependencies were never computed."
    HELP = (
        "Every node in the order in which it was executed; those that never ran stand at the"
        " end. The glyph is the node's state at the playhead, and beside ◌ stands the number of"
        " gradients it still waits for.\n\n"
        "Neighbours that belong to one module, or form a chain, are a group: ▾ marks its first"
        " line, ▸ a folded group."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e,space", "fold", "Fold", id="nodes.fold"),
        Binding("E", "fold_all", "Fold or unfold all", show=False, id="nodes.fold-all"),
    ]

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._groups: list[Group] = []
        self._folded: set[int] = set()
        self._rows: list[Row] = []
        self._line_of: dict[int, int] = {}

    def show(self, view: View) -> None:
        """Draw ``view``, and put the cursor on the selected node."""
        before = self.view
        super().show(view)
        if before is None or before.recording is not view.recording or before.thread != view.thread:
            self._groups = groups(view.recording, view.thread)
            self._folded = set()
            self._arrange()
        if view.selected is not None and view.selected != self.node:
            self._put_cursor_on(view.selected)
        shown = len(self._line_of)
        only = "" if view.thread is None else f" on T{view.thread}"
        self.subtitle(f"{view.moment.executed:,} done of {count(shown, 'node')}{only}")

    @property
    def node(self) -> int | None:
        """The node under the cursor."""
        return self._rows[self.cursor].node if self._rows else None

    @property
    def group_at_cursor(self) -> list[int]:
        """The nodes that fold together with the one under the cursor."""
        return self._rows[self.cursor].group.nodes if self._rows else []

    def header(self, width: int) -> Line:
        """Names of the columns."""
        number, name, place, time = self._widths(width)
        text = f"  {right('#', number)} {'state':<6}{left('node', name)} {left('module', place)}"
        return [Span(text + (f" {right('time', time)}" if time else ""), "muted")]

    def line(self, index: int, width: int) -> Line:
        """A node, or a folded group."""
        row = self._rows[index]
        at_playhead = self.shown.moment.node
        if row.folded:
            here = at_playhead in row.group.nodes
            return [Span(PLAYHEAD if here else " ", "playhead"), *self._group(row.group, width)]
        mark = Span(PLAYHEAD if at_playhead == row.node else " ", "playhead")
        fold = self._fold_mark(row)
        return [mark, fold, *self._node(self.shown.recording.nodes[row.node], width)]

    def cursor_moved(self) -> None:
        """Another node is looked at."""
        if self.node is not None:
            self.post_message(self.NodeSelected(self.node))

    def action_fold(self) -> None:
        """Fold the group under the cursor, or unfold it."""
        if len(self.group_at_cursor) < 2:
            self.notify("This node stands alone: there is nothing to fold.")
            return
        group = self._rows[self.cursor].group
        self._folded ^= {group.number}
        self._arrange()
        self._put_cursor_on(group.nodes[0])

    def action_fold_all(self) -> None:
        """Fold every group, or unfold all where every one is folded."""
        node = self.node
        foldable = {group.number for group in self._groups if len(group.nodes) > 1}
        self._folded = set() if self._folded == foldable else foldable
        self._arrange()
        if node is not None:
            self._put_cursor_on(node)

    def _arrange(self) -> None:
        self._rows = visible(self._groups, self._folded)
        self._line_of = {
            node: line
            for line, row in enumerate(self._rows)
            for node in (row.group.nodes if row.folded else (row.node,))
        }
        self.line_count = len(self._rows)
        self.refresh()

    def _put_cursor_on(self, node: int) -> None:
        line = self._line_of.get(node)
        if line is not None:
            self.put_cursor(line)

    def _widths(self, width: int) -> tuple[int, int, int, int]:
        """Cells for number, name, module and time."""
        number = max(3, len(str(len(self._line_of))))
        time = 8 if width >= 50 else 0
        rest = width - 2 - number - 1 - 6 - 1 - (time + 1 if time else 0)
        name = min(30, max(12, rest * 9 // 20))
        return number, name, max(0, rest - name), time

    def _fold_mark(self, row: Row) -> Span:
        if len(row.group.nodes) == 1:
            return Span(" ")
        return Span("▾" if row.node == row.group.nodes[0] else "│", "muted")

    def _node(self, node: NodeRow, width: int) -> Line:
        moment = self.shown.moment
        number_width, name_width, place_width, time_width = self._widths(width)
        state = moment.node_state(node.index)
        waits = f"{moment.remaining(node):>3}" if state is State.WAITING else ""
        place = node.parameter or node.module or ""
        if node.parameter and node.shape is not None:
            place = f"{place} {shape(node.shape)}"
        happened = state not in {State.WAITING, State.READY, State.RUNNING}
        line = [
            Span(right(f"{node.order:,}" if node.order else "-", number_width), "number"),
            Span(" "),
            Span(left(state.glyph + waits, 6), state.value),
            Span(left(node.short_name, name_width), "name" if happened else ""),
            Span(" "),
            Span(tail(place, place_width), "place"),
        ]
        if time_width:
            time = duration(node.duration_ns) if happened else ""
            line += [Span(" "), Span(right(time, time_width), "number")]
        return line

    def _group(self, group: Group, width: int) -> Line:
        moment = self.shown.moment
        number_width, _, _, time_width = self._widths(width)
        states = Counter(moment.node_state(node) for node in group.nodes)
        line = [
            Span("▸", "muted"),
            Span(" " * (number_width + 1)),
        ]
        for state in State:
            if states[state]:
                line += [Span(f"{state.glyph}{states[state]}", state.value), Span(" ")]
        used = sum(len(span.text) for span in line) + 1
        text = f"{count(len(group.nodes), 'node')}  {group.title}"
        line.append(Span(left(text, width - used - (time_width + 1 if time_width else 0)), "place"))
        nodes = [self.shown.recording.nodes[node] for node in group.nodes]
        total = sum(n.duration_ns or 0 for n in nodes if moment.node_state(n.index) is State.DONE)
        if time_width:
            line.append(Span(" " + right(duration(total) if total else "", time_width), "number"))
        return line
