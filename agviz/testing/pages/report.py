"""The page of one failing test: the answer, the line, what pytest printed, and two pictures."""

from __future__ import annotations

import html
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from agviz.errors import AgvizError
from agviz.export.pass_timeline import PassTimeline
from agviz.testing.attempt import DOT, GRAPH, TRACE
from agviz.testing.grouping import named
from agviz.testing.pages import escaped, page, with_glyph
from agviz.words.safe import clean_message
from agviz.words.units import size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.testing.report_data import ReportData
    from agviz.traces.reader import Trace

MOST_PICTURE: Final = 2_000_000
"""Bytes of a picture that is in the page; a larger one is only beside it."""
MOST_TEXT: Final = 20_000
"""Characters of what pytest printed."""


class PrintedText(NamedTuple):
    """What is in the page besides what everybody is shown."""

    source: Sequence[tuple[int, str]]
    """Lines around that of the verdict, with their numbers."""
    threads: Sequence[str]
    """The last nodes of each thread, in words."""
    pytest: str
    """What pytest prints of the failure; empty: nothing is known of it."""


class Pictures:
    """The pictures of the pass that says most.

    Args:
        trace: the recording.
        folder: where the graph was drawn.
    """

    def __init__(self, trace: Trace, folder: Path) -> None:
        self._trace = trace
        self._folder = folder

    def timeline(self) -> tuple[str, str]:
        """The pass in time as SVG, or nothing and why there is no picture."""
        try:
            drawn = "".join(PassTimeline(self._trace).pieces())
        except AgvizError as error:
            return "", f"The timeline is not drawn: {error}."
        if len(drawn) > MOST_PICTURE:
            command = "agviz export trace.agviz --format timeline"
            return "", f"The timeline takes {size(len(drawn))} and is left out: {command}."
        return drawn, ""

    def graph(self) -> tuple[str, str]:
        """The graph as SVG, or nothing and why there is no picture."""
        path = self._folder / GRAPH
        try:
            drawn = path.read_text(encoding="utf-8")
        except OSError:
            return "", f"The graph could not be drawn; {DOT} is beside this file."
        if len(drawn) > MOST_PICTURE:
            return "", f"The graph takes {size(len(drawn))} and is left out; {GRAPH} is beside it."
        return drawn[drawn.index("<svg") :], ""


def report_page(data: ReportData, said: PrintedText, pictures: Pictures) -> str:
    """The page.

    Args:
        data: what is known of the test.
        said: what is to be in the page besides.
        pictures: these, too, unless gradients have no part in the failure.
    """
    left_out: list[str] = []
    sections = [*_answer(data, said), *_printed(said.pytest, left_out)]
    if data["is_brief"]:
        left_out.append("As far as is known, gradients have no part in this failure: no pictures.")
    else:
        sections += _pictures(pictures, left_out)
    header = (
        f'<p class="test">{escaped(named(data))}'
        ' <a href="../index.html">all failures of the run</a></p>'
        f"\n<h1>{with_glyph(data['glyph'], data['heading'])}</h1>"
    )
    return page(
        f"{data['test']}: {data['heading']}",
        header,
        "\n".join(sections),
        "\n".join(_footer(data, left_out)),
    )


def _answer(data: ReportData, said: PrintedText) -> Iterator[str]:
    if data["place"]:
        yield f'<p class="where"><code>{escaped(data["place"])}</code></p>'
    if said.source:
        yield f'<pre class="source">{"".join(_numbered(said.source, data["line"]))}</pre>'
    if data["paragraph"]:
        yield f'<p class="answer">{escaped(data["paragraph"])}</p>'
    yield from (f'<p class="faint">{escaped(each)}</p>' for each in said.threads)


def _numbered(source: Sequence[tuple[int, str]], wanted: int) -> Iterator[str]:
    wide = len(str(source[-1][0]))
    for number, line in source:
        mark = "&gt;" if number == wanted else " "
        written = f"{mark} {number:{wide}}  {escaped(line)}"
        yield f"<b>{written}</b>\n" if number == wanted else f"{written}\n"


def _printed(printed: str, left_out: list[str]) -> Iterator[str]:
    if not printed:
        return
    if len(printed) > MOST_TEXT:
        left_out.append(f"Of what pytest printed, only the last {MOST_TEXT:,} characters are here.")
    shown = "\n".join(map(escaped, clean_message(printed[-MOST_TEXT:]).split("\n")))
    yield f'<h2>What pytest printed</h2>\n<pre class="long" tabindex="0">{shown}</pre>'


def _pictures(pictures: Pictures, left_out: list[str]) -> Iterator[str]:
    for heading, name, (drawn, why_not) in (
        ("The backward pass in time", "timeline", pictures.timeline()),
        ("Its graph", "graph", pictures.graph()),
    ):
        if why_not:
            left_out.append(why_not)
        else:
            yield f'<h2>{heading}</h2>\n<div class="picture" id="{name}" tabindex="0">{drawn}</div>'


def _footer(data: ReportData, left_out: list[str]) -> Iterator[str]:
    yield from (f'<p class="left-out">{html.escape(each)}</p>' for each in left_out)
    names = [Path(data[each]).name for each in ("trace", "graph", "summary") if data[each]]
    links = ", ".join(f'<a href="{name}">{name}</a>' for name in names)
    yield f"<p>Beside this file: {links}.</p>"
    verb = data["command"].split(maxsplit=2)[1]
    yield f"<p>With agviz installed: <code>agviz {verb} {TRACE}</code></p>"
