"""What a recorded test leaves beside its trace, and what is said of it."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Final, TypedDict

from agviz.errors import AgvizError, DrawingError
from agviz.testing.attempt import DOT, GRAPH, SUMMARY, TRACE
from agviz.testing.verdict import Verdict, last_nodes, verdict
from agviz.traces.reader import Trace
from agviz.traces.text import clean

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from agviz.testing.slug import Run

_SECONDS_TO_DRAW: Final = 10.0
_WIDTH: Final = 120


class Told(TypedDict):
    """What one report tells the end of the run of a test: plain, so that workers can send it."""

    test: str
    rerun: int
    part: str
    """All three as in :class:`~agviz.testing.slug.Run`."""
    has_recorded: bool
    problem: str
    """Why nothing could be recorded, or what is wrong with what was."""
    heading: str
    """The verdict; empty where the test did not fail."""
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


def nothing(run: Run) -> Told:
    """Of a test that left nothing."""
    return Told(
        test=run.test,
        rerun=run.rerun,
        part=run.part,
        has_recorded=False,
        problem="",
        heading="",
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


def leave(folder: Path, told: Told, *, is_failure: bool, wrong: str = "") -> Told:
    """Write picture and summary beside a trace, and say what it tells.

    Args:
        folder: where the trace is.
        told: what is known of it so far, and is added to.
        is_failure: whether there is a failure to explain.
        wrong: what the plugin failed the test for, where it did; said where the trace itself shows
            nothing that is wrong.

    Raises:
        agviz.errors.AgvizError: the trace can't be read, or the folder can't be written to.
    """
    path = folder / TRACE
    told["has_recorded"] = True
    told["trace"] = shown(path)
    with Trace.open(path) as trace:
        found = verdict(trace)
        told["shows_something"] = found.verb != "view"
        if wrong and not told["shows_something"]:
            found = Verdict(wrong)
        threads = list(last_nodes(trace))
        graph, problem = _draw(trace, folder)
        _summarize(trace, folder / SUMMARY, list(found.lines()))
    told["problem"] = problem
    told["graph"] = shown(graph)
    told["summary"] = shown(folder / SUMMARY)
    told["command"] = f"agviz {found.verb} {shlex.quote(shown(path))}"
    if is_failure:
        told["heading"] = clean(found.heading)
        lines = [
            *found.lines(),
            *threads,
            f"look: agviz view {shlex.quote(shown(path))}",
            *([f"more: {told['command']}"] if found.verb != "view" else []),
            f"graph: {told['graph']}, summary: {told['summary']}",
        ]
        told["section"] = "\n".join(map(clean, lines))
    return told


def shown(path: Path) -> str:
    """A file as it is typed where pytest runs."""
    try:
        relative = os.path.relpath(path)
    except ValueError:  # on another drive
        return str(path)
    return str(path) if relative.startswith("..") else relative


def _draw(trace: Trace, folder: Path) -> tuple[Path, str]:
    from agviz.export.draw import render_graph

    try:
        render_graph(trace, folder / GRAPH, timeout_s=_SECONDS_TO_DRAW)
    except DrawingError as error:
        return folder / DOT, str(error)
    return folder / GRAPH, ""


def _summarize(trace: Trace, path: Path, heading: Sequence[str]) -> None:
    from rich.console import Console

    from agviz.cli.summary import gather, show

    try:
        with path.open("w", encoding="utf-8") as file:
            file.writelines(f"{clean(line)}\n" for line in heading)
            file.write("\n")
            show(gather(trace, None, 10), Console(file=file, width=_WIDTH, highlight=False))
    except OSError as error:
        raise AgvizError(f"{path} can't be written: {error.strerror}") from error
