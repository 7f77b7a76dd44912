"""What happened in a run, one of its passes or a folder of ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.analysis.outcome import Outcome
from agviz.tui.panels.panel import Panel
from agviz.tui.text import Line, Span, wrap
from agviz.words.safe import clean
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.analysis.verdict import Verdict

_LOOKS: Final = {
    Outcome.FOUND: "failed",
    Outcome.NOTHING_UNUSUAL: "done",
    Outcome.CANT_TELL: "nonfinite",
}


class WhatHappened(Panel):
    """Verdicts, and what else is to be known."""

    HEADING = "What happened"
    DRAWS = ()
    HELP = ""
    can_focus = False

    def __init__(self, *, id: str) -> None:  # noqa: A002 - Textual's name for it
        super().__init__(id=id)
        self.more = "enter, then w"
        """How to read what has no room."""
        self._verdicts: Sequence[Verdict] = ()
        self._shape: Sequence[str] = ()
        self._wrapped: tuple[int, list[Line]] = (0, [])

    def show_verdicts(self, verdicts: Sequence[Verdict], shape: Sequence[str] = ()) -> None:
        """Say it; none: it is being found.

        Args:
            verdicts: the worst first.
            shape: what the run or the pass is made of, in sentences.
        """
        self._verdicts, self._shape = verdicts, shape
        self._wrapped = (0, [])
        self.redraw()

    def height_for(self, width: int) -> int:
        """Lines that it takes to say everything in so many cells, borders included."""
        return len(self._wrapped_to(width - 2)) + 2

    def row(self, y: int, width: int) -> tuple[Line, str]:
        """A line of it; the last says how many have no room."""
        lines = self._wrapped_to(width)
        height = self.scrollable_content_region.height
        if y == height - 1 and len(lines) > height:
            more = plural(len(lines) - height + 1, "line")
            return [Span(f" … {more} more: {self.more}", "muted")], ""
        return (lines[y] if y < len(lines) else []), ""

    def _wrapped_to(self, width: int) -> list[Line]:
        if self._wrapped[0] != width:
            self._wrapped = width, [*self._lines(width - 2)]
        return self._wrapped[1]

    def _lines(self, width: int) -> Iterator[Line]:
        for verdict in self._verdicts:
            look = _LOOKS[verdict.outcome]
            heading = f"{verdict.outcome.glyph} {verdict.heading}"
            yield from ([Span(f" {text}", look)] for text in wrap(clean(heading), width))
            if verdict.line:
                source = f"  {verdict.source}" if verdict.source else ""
                yield [Span(f"   {verdict.line}", "place"), Span(source, "string")]
            for paragraph in filter(None, (verdict.paragraph,)):
                yield from ([Span(f"   {text}")] for text in wrap(paragraph, width - 2))
        for sentence in self._shape:
            yield from ([Span(f" {text}", "name")] for text in wrap(clean(sentence), width))
