"""What a recorded test leaves beside its trace, and what is said of it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from agviz.analysis.outcome import Outcome
from agviz.analysis.source import source_around
from agviz.cli.summary import gather, show
from agviz.errors import AgvizError, DrawingError
from agviz.testing.attempt import DOT, GRAPH, REPORT, SUMMARY, TRACE
from agviz.testing.failing import Failing
from agviz.testing.grouping import named
from agviz.testing.pages.report import Pictures, PrintedText, report_page
from agviz.testing.paths import shown
from agviz.testing.verdict import judge, last_nodes, lines
from agviz.traces.reader import Trace
from agviz.words.safe import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from agviz.analysis.verdict import Verdict
    from agviz.testing.report_data import ReportData

_SECONDS_TO_DRAW: Final = 10.0
_WIDTH: Final = 120


def leave(
    folder: Path, data: ReportData, failing: Failing | None, *, is_asked: bool = False
) -> None:
    """Write report, picture and summary beside a trace, and say what the trace shows.

    Args:
        folder: where the trace is.
        data: what is known of it so far, and is added to.
        failing: why the test failed; None: it did not.
        is_asked: whether a picture is wanted of every test, and not only of what was found.

    Raises:
        agviz.errors.AgvizError: the trace can't be read, or the folder can't be written to.
    """
    path = folder / TRACE
    data["has_recorded"] = True
    data["trace"] = shown(path)
    with Trace.open(path) as trace:
        judged = judge(trace, failing or Failing())
        found = judged.verdict
        data["is_brief"] = judged.is_brief
        threads = [] if judged.is_brief else list(last_nodes(trace))
        if is_asked or not judged.is_brief:
            graph, data["problem"] = _draw(trace, folder)
            _summarize(trace, folder / SUMMARY, list(lines(found)))
            data["graph"], data["summary"] = shown(graph), shown(folder / SUMMARY)
        data["shows_something"] = found.is_found
        data["command"] = f"agviz {found.verb} {shlex.quote(shown(path))}"
        if failing is not None:
            _note_verdict(data, found, failing)
            data["cause"], data["title"] = judged.cause.key, clean(judged.cause.title)
            data["report"] = shown(folder / REPORT)
            section = _brief(data, failing) if judged.is_brief else _in_full(data, found, threads)
            data["section"] = "\n".join(map(clean, section))
            said = PrintedText(
                source=[] if found.frame is None else source_around(found.frame, path),
                threads=threads,
                pytest=failing.said,
            )
            _write(folder / REPORT, report_page(data, said, Pictures(trace, folder)))


def _note_verdict(data: ReportData, found: Verdict, failing: Failing) -> None:
    """Note what the verdict says, for those who have no trace at hand."""
    data["has_failed"] = True
    data["heading"] = clean(found.heading)
    is_plain = found.outcome is Outcome.NOTHING_UNUSUAL
    data["glyph"] = "" if is_plain else found.outcome.glyph
    data["error"] = failing.first_line
    data["place"], data["source"] = clean(found.line), clean(found.source)
    if found.frame is not None:
        data["file"], data["line"] = found.frame.file, found.frame.line
    data["paragraph"] = clean(found.paragraph)


def referring(data: ReportData, first: ReportData) -> str:
    """A short section for a failure of the same cause as one that was explained in full.

    Args:
        data: what is known of it.
        first: what is known of the other.
    """
    place = f"  {data['place']}\n" if data["place"] else ""
    return (
        f"{data['heading']}\n{place}"
        f"the same cause as in {named(first)}, where the whole answer is\n"
        f"look: agviz view {shlex.quote(data['trace'])}\nreport: {data['report']}"
    )


def _brief(data: ReportData, failing: Failing) -> Iterator[str]:
    late = "; its deadline is missed without agviz, too" if failing.has_missed_deadline else ""
    yield f"{data['heading']}{late}: {data['command']}"


def _in_full(data: ReportData, found: Verdict, threads: Sequence[str]) -> Iterator[str]:
    yield from lines(found)
    yield from threads
    yield f"look: agviz view {shlex.quote(data['trace'])}"
    if found.verb != "view":
        yield f"more: {data['command']}"
    yield f"report: {data['report']}"
    yield f"graph: {data['graph']}, summary: {data['summary']}"


def _draw(trace: Trace, folder: Path) -> tuple[Path, str]:
    from agviz.export.draw import render_graph

    try:
        render_graph(trace, folder / GRAPH, timeout_s=_SECONDS_TO_DRAW)
    except DrawingError as error:
        return folder / DOT, str(error)
    return folder / GRAPH, ""


def _summarize(trace: Trace, path: Path, heading: Sequence[str]) -> None:
    from rich.console import Console

    try:
        with path.open("w", encoding="utf-8") as file:
            file.writelines(f"{clean(line)}\n" for line in heading)
            file.write("\n")
            show(gather(trace, None, 10), Console(file=file, width=_WIDTH, highlight=False))
    except OSError as error:
        raise AgvizError(f"{path} can't be written: {error.strerror}") from error


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise AgvizError(f"{path} can't be written: {error.strerror}") from error
