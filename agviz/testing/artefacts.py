"""What a recorded test leaves beside its trace, and what is said of it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final, TypedDict

from agviz.analysis.outcome import Outcome
from agviz.cli.summary import gather, show
from agviz.errors import AgvizError, DrawingError
from agviz.testing.attempt import DOT, GRAPH, SUMMARY, TRACE
from agviz.testing.failing import Failing
from agviz.testing.paths import shown
from agviz.testing.verdict import judge, last_nodes, lines
from agviz.traces.reader import Trace
from agviz.words.safe import clean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from agviz.analysis.verdict import Verdict
    from agviz.testing.slug import TestPart

_SECONDS_TO_DRAW: Final = 10.0
_WIDTH: Final = 120


class ReportData(TypedDict):
    """What one report says of a recorded test: plain data, which workers can send."""

    test: str
    rerun: int
    part: str
    """All three as in :class:`~agviz.testing.slug.TestPart`."""
    has_recorded: bool
    problem: str
    """Why nothing could be recorded, or what is wrong with what was."""
    remark: str
    """Which engine served, where it is not the one to expect; empty: it is."""
    heading: str
    """The verdict; empty where the test did not fail."""
    glyph: str
    """What precedes it; empty where nothing unusual was found in a test that failed."""
    is_brief: bool
    """Whether gradients have no part in the failure, so that nothing more is to be said."""
    trace: str
    """The file that was kept; empty: none."""
    graph: str
    summary: str
    command: str
    """Opens the trace, or says more of the verdict."""
    section: str
    shows_something: bool
    """Whether the trace itself shows something that is wrong."""
    without_baseline: bool
    """Whether it should have been compared and there was nothing to compare it with."""
    verified: int
    """Backward passes that ran on both engines."""
    not_comparable: int


def nothing(run: TestPart) -> ReportData:
    """Of a test that left nothing."""
    return ReportData(
        test=run.test,
        rerun=run.rerun,
        part=run.part,
        has_recorded=False,
        problem="",
        remark="",
        heading="",
        glyph="",
        is_brief=False,
        trace="",
        graph="",
        summary="",
        command="",
        section="",
        shows_something=False,
        without_baseline=False,
        verified=0,
        not_comparable=0,
    )


def leave(
    folder: Path, data: ReportData, failing: Failing | None, *, is_asked: bool = False
) -> ReportData:
    """Write picture and summary beside a trace, and say what the trace shows.

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
        found, is_brief = judge(trace, failing or Failing())
        data["is_brief"] = is_brief
        threads = [] if is_brief else list(last_nodes(trace))
        if is_asked or not is_brief:
            graph, data["problem"] = _draw(trace, folder)
            _summarize(trace, folder / SUMMARY, list(lines(found)))
            data["graph"], data["summary"] = shown(graph), shown(folder / SUMMARY)
    data["shows_something"] = found.is_found
    data["command"] = f"agviz {found.verb} {shlex.quote(shown(path))}"
    if failing is not None:
        data["heading"] = clean(found.heading)
        is_plain = found.outcome is Outcome.NOTHING_UNUSUAL
        data["glyph"] = "" if is_plain else found.outcome.glyph
        said = _brief(data, failing) if is_brief else _in_full(data, found, threads)
        data["section"] = "\n".join(map(clean, said))
    return data


def _brief(data: ReportData, failing: Failing) -> Iterator[str]:
    late = "; its deadline is missed without agviz, too" if failing.has_missed_deadline else ""
    yield f"{data['heading']}{late}: {data['command']}"


def _in_full(data: ReportData, found: Verdict, threads: Sequence[str]) -> Iterator[str]:
    yield from lines(found)
    yield from threads
    yield f"look: agviz view {shlex.quote(data['trace'])}"
    if found.verb != "view":
        yield f"more: {data['command']}"
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
