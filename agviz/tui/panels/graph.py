"""The graph: every node as a row in execution order, its edges as lanes beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NamedTuple

from textual.binding import Binding, BindingType

from agviz.traces.inferred import mark_of
from agviz.tui.folding import Fold, Folding
from agviz.tui.lanes import draw
from agviz.tui.model import Mark, State
from agviz.tui.panels.line_list import LineList
from agviz.tui.text import PLAYHEAD, Line, Span, left, right, tail
from agviz.words.units import duration, plural

if TYPE_CHECKING:
    from agviz.tui.model import View


_LANES = ((50, 4), (64, 5), (90, 6), (10_000, 10))
"""Below so many cells of width, so many lanes."""


class _Widths(NamedTuple):
    """Cells of the columns of a line; 0: it is left out."""

    lanes: int
    """Two cells each."""
    number: int
    mark: int
    waits: int
    name: int
    place: int
    time: int


class GraphPanel(LineList):
    """One line per node, or per fold of neighbours."""

    HEADING = "Graph"
    DRAWS = ("recording", "moment", "selected", "thread", "marks")
    HAS_HEADER = True
    EMPTY = "No nodes: the dependencies were never computed."
    HELP = (
        "Every node in the order in which it was executed; those that have not run are at the"
        " end. The glyph is the node's state at the playhead, and beside ◌ is the number of"
        " gradients it still waits for.\n\n"
        "The lanes at the left are the edges, as in git log --graph: they lead down from a node"
        " to those it gives gradients to. … says that there are more lanes than fit, » that the"
        " node has one of these.\n\n"
        "Space folds the neighbours that are of one module or form a chain into one line; left"
        " folds more: a repeated block, the module around; right less.\n\n"
        "In front of a node, ◆ is a breakpoint, ◈ one that stops once, ▷ a log point, ◇ one"
        " that is switched off."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e,space", "fold", "Fold", id="graph.fold"),
        Binding("h,left", "fold_more", "Fold more", show=False, id="graph.fold-more"),
        Binding("l,right", "fold_less", "Fold less", show=False, id="graph.fold-less"),
        Binding("E", "fold_all", "Fold or unfold all", show=False, id="graph.fold-all"),
    ]

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._folding: Folding | None = None
        self._started = 0

    def take_over(self, view: View, before: View | None) -> None:
        """Draw ``view``, and put the cursor on the selected node."""
        columns = view.recording.columns
        is_new = before is None or not view.recording.is_same(before.recording)
        if is_new or (before is not None and before.thread != view.thread):
            self._folding = Folding(columns, self._rows_shown(view))
        elif len(columns.started) != self._started and view.thread is not None:
            folds = self.folding.folds
            self._folding = Folding(columns, self._rows_shown(view))
            for fold in folds:
                self._folding.fold(fold)
        if len(columns.started) != self._started:
            self.folding.forget_from(self._started)
        self._started = len(columns.started)
        self.line_count = self.folding.lines
        if view.selected is not None and view.selected != self.node:
            self._put_cursor_on(view.selected)
        only = "" if view.thread is None else f" on T{view.thread}"
        reading = "" if columns.is_complete else ", reading …"
        shown = plural(len(self.folding) if only else columns.nodes, "node")
        self.subtitle(f"{view.moment.executed:,} done of {shown}{only}{reading}")

    @staticmethod
    def _rows_shown(view: View) -> list[int] | None:
        if view.thread is None:
            return None
        server = view.recording.threads.get(view.thread)
        queue = None if server is None else server.queue
        return list(view.recording.columns.rows_of_thread(view.thread, queue))

    @property
    def folding(self) -> Folding:
        """Which lines there are. Raises RuntimeError before there is anything to show."""
        if self._folding is None:
            raise RuntimeError("there is no graph yet")
        return self._folding

    @property
    def node(self) -> int | None:
        """The node under the cursor; of a fold the first one."""
        if not self.line_count:
            return None
        place, _ = self.folding.at(self.cursor)
        return self.folding.node(place)

    def header(self, width: int) -> Line:
        """Names of the columns."""
        if self.view is None:
            return []
        widths = self._widths(width)
        waits = " " * (widths.mark - 1)
        waits += left("waits" if widths.waits > 5 else "", widths.waits)
        graph = left("graph" if widths.lanes > 2 else "", 2 * widths.lanes)
        text = f" {graph}{right('#', widths.number)} {waits}"
        module = "module" if self.view.recording.columns.has_places else ""
        text += f"{left('node', widths.name)} {left(module, widths.place)}"
        return [Span(text + (f" {right('time', widths.time)}" if widths.time else ""), "muted")]

    def line(self, index: int, width: int) -> Line:
        """A node, or a fold."""
        place, fold = self.folding.at(index)
        at_playhead = self.shown.moment.node
        if fold is not None:
            rows = range(fold.start, fold.end)
            at = None if at_playhead is None else self.folding.place_of(at_playhead)
            mark = PLAYHEAD if at in rows else " "
            return [Span(mark, "playhead"), *self._fold(fold, width)]
        node = self.folding.node(place)
        mark = PLAYHEAD if at_playhead == node else " "
        return [Span(mark, "playhead"), *self._node(place, node, width)]

    def cursor_moved(self) -> None:
        """Another node is looked at."""
        if self.node is not None:
            self.look_at_node(self.node)

    def action_fold(self) -> None:
        """Fold the group under the cursor, or unfold it."""
        place, fold = self._at_cursor()
        if fold is not None:
            self.folding.unfold(fold)
            self._folded(place)
        else:
            self._fold_around(place, 1)

    def action_fold_more(self) -> None:
        """Fold the next larger group around the cursor."""
        place, fold = self._at_cursor()
        self._fold_around(place, 1 if fold is None else fold.rows)

    def action_fold_less(self) -> None:
        """Unfold what is under the cursor into the groups that it consists of."""
        place, fold = self._at_cursor()
        if fold is None:
            self.notify("Nothing is folded here.")
        else:
            self.folding.unfold(fold, self.folding.inside(fold))
            self._folded(place)

    def action_fold_all(self) -> None:
        """Fold every group, or unfold all where anything is folded."""
        place, _ = self._at_cursor()
        if self.folding.folds:
            self.folding.unfold_all()
        else:
            self.folding.fold_all()
        self._folded(place)

    def _at_cursor(self) -> tuple[int, Fold | None]:
        return self.folding.at(self.cursor) if self.line_count else (0, None)

    def _fold_around(self, place: int, rows: int) -> None:
        levels = self.folding.levels(place) if self.line_count else []
        larger = [level for level in levels if level.rows > rows]
        if larger:
            self.folding.fold(larger[0])
            self._folded(larger[0].start)
        elif rows > 1:
            self.notify("There is no larger group around this one.")
        else:
            self.notify("This node is alone: there is nothing to fold.")

    def _folded(self, place: int) -> None:
        """Show what is folded now."""
        self.line_count = self.folding.lines
        self.put_cursor(self.folding.line_of(place))
        self.redraw()

    def _put_cursor_on(self, node: int) -> None:
        place = self.folding.place_of(node)
        if place is not None:
            line = self.folding.line_of(place)
            if line != self.cursor:
                self.put_cursor(line)

    def _widths(self, width: int) -> _Widths:
        columns = self.shown.recording.columns
        most = next(lanes for cells, lanes in _LANES if width < cells)
        lanes = min(max(columns.widest, 1), most)
        number = max(3, len(f"{columns.nodes:,}"))
        most_waits = f"{mark_of(self.shown.recording.meta)}{columns.most_dependencies:,} "
        waits = max(6 if width >= 70 else 4, len(most_waits))
        time = 8 if width >= (56 if columns.has_places else 44) else 0
        mark = 2 if self.shown.is_live else 1
        rest = width - 1 - 2 * lanes - number - mark - waits - 1 - (time + 1 if time else 0)
        name = min(28, columns.longest_name, max(16, rest // 2))
        if not columns.has_places:
            name = min(columns.longest_name, rest)
        return _Widths(lanes, number, mark, waits, name, max(0, rest - name), time)

    def _node(self, place: int, node: int, width: int) -> Line:
        moment, widths = self.shown.moment, self._widths(width)
        facts, state = self.shown.recording.node(node), moment.node_state(node)
        waits = ""
        if state is State.WAITING and (missing := moment.remaining(node, facts.dependencies)):
            waits = f"{mark_of(self.shown.recording.meta)}{missing:,}"
        happened = state not in {State.WAITING, State.READY, State.RUNNING}
        module = f"{facts.place} {facts.shape}" if facts.parameter else facts.module
        line = [
            *self._lanes(place, place + 1, Span(state.glyph, state.value), widths.lanes),
            Span(right(f"{facts.order:,}" if facts.order else "-", widths.number), "number"),
            self._mark([node], widths.mark),
            Span(left(waits, widths.waits), "waiting"),
            Span(left(facts.short_name, widths.name), "name" if happened else ""),
            Span(" "),
            Span(tail(module.rstrip(), widths.place), "place"),
        ]
        if widths.time:
            time = duration(facts.duration_ns) if happened else ""
            line += [Span(" "), Span(right(time, widths.time), "number")]
        return line

    def _lanes(self, start: int, end: int, glyph: Span, lanes: int) -> Line:
        first, last = self.folding.row(start), self.folding.row(end - 1)
        fork = self.shown.recording.columns.lanes_at(first, last + 1)
        if fork is None:
            return [glyph, Span(" " * (2 * lanes - 1))]
        cells, at = draw(fork, lanes)
        return [Span(cells[:at], "lane"), glyph, Span(cells[at + 1 :], "lane")]

    def _fold(self, fold: Fold, width: int) -> Line:
        moment, widths = self.shown.moment, self._widths(width)
        nodes = [self.folding.node(place) for place in range(fold.start, fold.end)]
        states = moment.count_states(nodes)
        line = [
            *self._lanes(fold.start, fold.end, Span("▸", "heading"), widths.lanes),
            Span(" " * widths.number),
            self._mark(nodes, widths.mark),
        ]
        for state in State:
            if states[state]:
                line += [Span(f"{state.glyph}{states[state]}", state.value), Span(" ")]
        used = sum(len(span.text) for span in line) + 1
        text = f"{plural(fold.rows, 'node')}  {fold.title}"
        line.append(
            Span(left(text, width - used - (widths.time + 1 if widths.time else 0)), "place")
        )
        if widths.time:
            total = self._time(nodes) if set(states) == {State.DONE} else 0
            line.append(Span(" " + right(duration(total) if total else "", widths.time), "number"))
        return line

    def _mark(self, nodes: list[int], width: int) -> Span:
        """The breakpoint of some nodes that says most."""
        marks = self.shown.marks
        here = {marks[node] for node in nodes if node in marks} if marks else set()
        for mark in Mark:
            if mark in here:
                look = "muted" if mark is Mark.DISABLED else "breakpoint"
                return Span(left(mark.glyph, width), look)
        return Span(" " * width)

    def _time(self, nodes: list[int]) -> int:
        facts = self.shown.recording.node
        return sum(facts(node).duration_ns or 0 for node in nodes)
