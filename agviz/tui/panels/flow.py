"""A gradient on its way from the loss to a parameter, and that parameter over the run."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from textual.binding import Binding, BindingType
from textual.message import Message

from agviz.analysis.flow_steps import StepWidths
from agviz.analysis.median import median
from agviz.analysis.outcome import Outcome
from agviz.tui.panels.line_list import LineList
from agviz.tui.panels.panel import Panel
from agviz.tui.text import Line, Span, left, right, tail, wrap
from agviz.words.units import factor as in_few_cells

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.flow import FollowedGradient
    from agviz.analysis.flow_finding import FlowFinding
    from agviz.analysis.flow_steps import FlowStep

_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_BARS: Final = "▁▂▃▄▅▆▇█"
_TIMES: Final = "\N{MULTIPLICATION SIGN}"
_LOOKS: Final = {
    Outcome.FOUND: "failed",
    Outcome.NOTHING_UNUSUAL: "done",
    Outcome.CANT_TELL: "nonfinite",
}


class FlowSentence(Panel):
    """What is to be said of the flow."""

    HEADING = "Flow"
    DRAWS = ()
    HELP = ""
    can_focus = False

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._finding: FlowFinding | None = None
        self._more = ""

    def show_finding(self, finding: FlowFinding | None, more: str) -> None:
        """Say it; None: it is being found."""
        self._finding, self._more = finding, more
        self.redraw()

    def lines_in(self, width: int) -> list[Line]:
        """All of it."""
        finding = self._finding
        if finding is None:
            return [[Span(f" {self._more}", "muted")]]
        look = _LOOKS[finding.outcome]
        said = [*wrap(f"{finding.outcome.glyph} {finding.sentence}", width - 2)]
        lines: list[Line] = [[Span(f" {text}", look)] for text in said]
        more = wrap(self._more, width - 2) if self._more else ()
        return [*lines, *([Span(f" {text}", "muted")] for text in more)]

    def row(self, y: int, width: int) -> tuple[Line, str]:
        """A line of it."""
        lines = self.lines_in(width)
        return (lines[y] if y < len(lines) else []), ""


class _FlowWidths(NamedTuple):
    """Cells of the columns; 0: it is left out."""

    number: int
    name: int
    bar: int
    norm: int
    factor: int
    since: int
    place: int
    line: int


class FlowList(LineList):
    """One line per node, the loss first."""

    HEADING = "Way"
    DRAWS = ()
    HAS_HEADER = True
    HELP = (
        "The gradient on its way from what backward was called on, at the top, to a parameter at"
        " the bottom: a line for each node, with the norm of what it put out towards the next, a"
        " bar of it on a scale of powers of ten, how many times that is what the node before put"
        f" out (12{_TIMES}, /3.5: smaller), how many times what the loss function put out, and the"
        " line of the forward that made the node.\n\n"
        "Into some nodes several gradients lead (⊕2: as at the end of a residual connection); the"
        " way is along the largest, space follows the next smaller one, and after the last the"
        " largest again. ▼ and ▲ are where the norm falls or grows much more than at other nodes"
        " of a way that is unusual; ! where it is not finite, 0 where it is zero.\n\n"
        "Found is what is not finite or zero, and a fall or growth behind the loss function of more"
        " than half of the digits of the gradient's type (3,000-fold in float32), where that is"
        " more than twice what the steps of this way come to by chance: their median, in powers of"
        " ten, times the square root of how many they are.\n\n"
        "Below is the norm of the parameter's gradient after each pass of the run; left and right"
        " show the flow in the pass before and in the next. enter opens the pass at the node, w"
        " says why a gradient is not finite, zero or None."
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Open node", id="flow.open"),
        Binding("space", "other_way", "Other way", id="flow.other-way"),
    ]

    class NodeOpened(Message):
        """The user wants to see the node under the cursor in its pass."""

    class OtherWayWanted(Message):
        """Another gradient is to be followed into the node under the cursor."""

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._flow: FollowedGradient | None = None
        self._range = 0.0, 0.0
        self._needs = StepWidths(0, 0, 0, 0)
        self._steep: frozenset[int] = frozenset()

    def show_flow(self, flow: FollowedGradient | None) -> None:
        """Draw it; None: nothing is known."""
        self._flow = flow
        if flow is not None:
            self._range, self._needs = flow.steps.range, flow.steps.widths
            self._steep = frozenset(flow.finding.steep)
        self.line_count = 0 if flow is None else len(flow.steps)
        self.redraw()

    @property
    def step(self) -> FlowStep | None:
        """The node under the cursor."""
        if self._flow is None or self.cursor >= len(self._flow.steps):
            return None
        return self._flow.steps[self.cursor]

    def header(self, width: int) -> Line:
        """Names of the columns."""
        widths = self._widths(width)
        text = f" {right('#', widths.number)} {left('node', widths.name)}   "
        text += f" {left('norm', widths.bar)} {right('', widths.norm)}"
        if widths.factor:
            text += f" {right(f'{_TIMES} before', widths.factor)}"
        if widths.since:
            text += f" {right(f'{_TIMES} loss', widths.since)}"
        if widths.place:
            text += f" {left('module', widths.place)}"
        if widths.line:
            text += f" {left('line', widths.line)}"
        return [Span(text, "muted")] if self.line_count else []

    def row(self, y: int, width: int) -> tuple[Line, str]:
        """A line; nothing where there is none."""
        if self._flow is None or not self._flow.steps:
            return [], ""
        return super().row(y, width)

    def line(self, index: int, width: int) -> Line:
        """A node."""
        if self._flow is None:
            return []
        steps, widths = self._flow.steps, self._widths(width)
        step, before = steps[index], steps[index - 1] if index else None
        number = "" if step.order is None else f"{step.order:,}"
        mark = _mark(step, before, is_steep=index in self._steep)
        line = [
            Span(f" {right(number, widths.number)} ", "number"),
            Span(left(step.name, widths.name), "name"),
            Span(left(f" ⊕{step.ways}" if step.ways > 1 else "", 4), "place"),
            Span(f"{left(self._bar(step.norm, widths.bar), widths.bar)}", "lane-past"),
            mark,
            Span(right(amount(step.norm), widths.norm), _look(step.norm)),
        ]
        factor = None if before is None else _factor(step.norm, before.norm)
        since = _factor(step.norm, self._flow.base)
        if widths.factor:
            line.append(Span(f" {right(_times(factor), widths.factor)}", "number"))
        if widths.since:
            line.append(Span(f" {right(_times(since), widths.since)}", "number"))
        if widths.place:
            line += [Span(" "), Span(tail(step.module, widths.place), "place")]
        if widths.line:
            line += [Span(" "), Span(tail(step.line, widths.line), "muted")]
        return line

    def action_open(self) -> None:
        """Look at the node in its pass."""
        if self.step is not None:
            self.post_message(self.NodeOpened())

    def action_other_way(self) -> None:
        """Follow another gradient into the node."""
        if self.step is not None and self.step.ways > 1:
            self.post_message(self.OtherWayWanted())
        else:
            self.notify("Only one gradient leads into this node.")

    def _widths(self, width: int) -> _FlowWidths:
        number = max(3, self._needs.order)
        name = min(max(12, self._needs.name), 28 if width >= 100 else 20)
        norm, bar = 8, 10 if width < 100 else 16
        factor = 8
        rest = width - number - name - norm - bar - factor - 10
        since = 8 if rest >= 44 else 0
        rest -= since + 1 if since else 0
        line = min(self._needs.line, rest - 1 if rest < 30 else rest // 2)
        rest -= line + 1
        place = min(self._needs.module, rest - 1)
        if place < 6:
            place = 0
        return _FlowWidths(number, name, bar, norm, factor, since, place, max(0, line))

    def _bar(self, norm: float | None, cells: int) -> str:
        """On a scale of powers of ten, from the least to the largest of this way."""
        if not _is_amount(norm) or norm is None:
            return ""
        low, high = self._range
        level = 1.0 if high - low < 1e-9 else (math.log10(norm) - low) / (high - low)
        eighths = max(1, round(level * cells * 8))
        return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()


class FlowHistory(Panel):
    """The norm of the parameter's gradient over the passes of the run."""

    HEADING = "Over the passes"
    DRAWS = ()
    HELP = ""
    can_focus = False

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self._norms: Sequence[float | None] = ()
        self._names: Sequence[int] = ()
        self._place: int | None = None
        self._said = ""
        self._is_read = False

    def show_history(
        self,
        names: Sequence[int],
        norms: Sequence[float | None],
        place: int | None,
        *,
        is_read: bool,
    ) -> None:
        """Draw it, with the pass of a place marked."""
        self._names, self._norms, self._place = names, norms, place
        self._said, self._is_read = "", is_read
        self.redraw()

    def say(self, sentence: str) -> None:
        """Say why there is nothing to draw."""
        self._said, self._norms = sentence, ()
        self.redraw()

    def row(self, y: int, width: int) -> tuple[Line, str]:
        """Bars, then two lines of numbers."""
        if self._said or not self._norms:
            return ([Span(f" {self._said}", "muted")] if y == 0 else []), ""
        if y == 0:
            return [Span(" "), *self._bars(width - 2)], ""
        lines = self._numbers()
        return ([Span(" "), *lines[y - 1]] if y - 1 < len(lines) else []), ""

    def _bars(self, room: int) -> Iterator[Span]:
        """A window of passes around the chosen one, each of the same number of cells."""
        count = len(self._norms)
        begin = 0
        if count > room:
            begin = min(max(0, (self._place or 0) - room // 2), count - room)
        shown = self._norms[begin : begin + room]
        cells = min(4, max(1, room // max(1, len(shown))))
        known = [math.log10(norm) for norm in self._norms if _is_amount(norm) and norm is not None]
        low, high = min(known, default=0.0), max(known, default=0.0)
        for at, norm in enumerate(shown, start=begin):
            if norm is None:
                glyph, look = "·", "muted"
            elif math.isnan(norm) or math.isinf(norm):
                glyph, look = "!", "nonfinite"
            elif norm == 0:
                glyph, look = "0", "nonfinite"
            else:
                level = 0.5 if high - low < 1e-9 else (math.log10(norm) - low) / (high - low)
                glyph, look = _BARS[min(int(level * len(_BARS)), len(_BARS) - 1)], "lane-past"
            yield Span(glyph * cells, "playhead" if at == self._place else look)

    def _numbers(self) -> list[Line]:
        place, norms = self._place, self._norms
        finite = {
            at: norm for at, norm in enumerate(norms) if norm is not None and math.isfinite(norm)
        }
        here = None if place is None else norms[place]
        number = "" if place is None else f"pass #{self._names[place]}: "
        waits = here is None and not self._is_read
        first: Line = [
            Span(number, "heading"),
            Span("reading …" if waits else amount(here, none="no gradient"), _look(here)),
        ]
        if not finite:
            return [first]
        least, most = min(finite, key=finite.__getitem__), max(finite, key=finite.__getitem__)
        middle = median(finite.values())
        text = f"  median {middle:.3g}, least {finite[least]:.3g} in #{self._names[least]},"
        text += f" most {finite[most]:.3g} in #{self._names[most]}"
        first.append(Span(text, "number"))
        counts = {
            "not finite (!)": sum(norm is not None and not math.isfinite(norm) for norm in norms),
            "zero (0)": sum(norm == 0 for norm in norms),
            "no gradient (·)": sum(norm is None for norm in norms) if self._is_read else 0,
        }
        said = [f"{name} in {count:,}" for name, count in counts.items() if count]
        of = f"{len(finite):,} of {len(norms):,} passes with a gradient that is finite"
        reading = [] if self._is_read else ["reading …"]
        return [first, [Span(", ".join([of, *said, *reading]), "muted")]]


def amount(norm: float | None, *, none: str = "?") -> str:
    """A norm in words."""
    if norm is None:
        return none
    if math.isnan(norm) or math.isinf(norm):
        return "NaN, Inf"
    return f"{norm:.3g}"


def _look(norm: float | None) -> str:
    return "number" if norm is not None and math.isfinite(norm) and norm else "nonfinite"


def _is_amount(norm: float | None) -> bool:
    return norm is not None and 0 < norm < math.inf


def _factor(norm: float | None, before: float | None) -> float | None:
    if norm is None or before is None or not _is_amount(before) or not _is_amount(norm):
        return None
    return norm / before


def _times(factor: float | None) -> str:
    if factor is None:
        return ""
    if abs(factor - 1) < 5e-4:
        return "1"
    return f"{in_few_cells(factor)}{_TIMES}" if factor > 1 else f"/{in_few_cells(1 / factor)}"


def _mark(step: FlowStep, before: FlowStep | None, *, is_steep: bool) -> Span:
    """What is unusual about a step."""
    if step.norm is not None and not math.isfinite(step.norm):
        return Span("!", "nonfinite")
    if step.norm == 0:
        return Span("0", "nonfinite")
    if is_steep and before is not None:
        factor = _factor(step.norm, before.norm)
        return Span("▼" if factor is not None and factor < 1 else "▲", "failed")
    return Span(" ")
