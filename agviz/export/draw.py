"""Drawing DOT: Graphviz as a child process that can be killed, and what to do when it takes long.

The system's ``dot`` draws where there is one, otherwise the Graphviz inside the pygraphviz wheel.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agviz.errors import DrawingError
from agviz.export.dot import draw_picture
from agviz.graph.fold import DEFAULT_BUDGET
from agviz.graph.model import read_graph
from agviz.graph.picture import compose
from agviz.traces.text import clean

if TYPE_CHECKING:
    from os import PathLike

    from agviz.traces.reader import Trace

FORMATS = ("svg", "png", "pdf")
DEFAULT_TIMEOUT_S = 20.0
SMALL_BUDGET = 60
"""Nodes drawn when everything else took too long."""

BUNDLED = (
    "import sys, pygraphviz\n"
    "graph = pygraphviz.AGraph(string=sys.stdin.buffer.read().decode())\n"
    "sys.stdout.buffer.write(graph.draw(format=sys.argv[1], prog='dot'))\n"
)
"""What the child process runs where there is no ``dot`` program."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """What :func:`render_graph` wrote."""

    path: Path
    dot_path: Path
    notes: tuple[str, ...]
    """What was folded or simplified, in sentences; empty where the picture shows everything."""


def render(dot_text: str, format: str, timeout_s: float = DEFAULT_TIMEOUT_S) -> bytes:  # noqa: A002
    """Draw ``dot_text``.

    Args:
        dot_text: a graph in DOT.
        format: one of :data:`FORMATS`.
        timeout_s: seconds after which Graphviz is killed.

    Raises:
        agviz.errors.DrawingError: it took too long, failed, or there is no Graphviz.
    """
    check_format(format)
    command = _command(format)
    if command is None:
        raise DrawingError(
            "There is no Graphviz: install the `dot` program (package graphviz) or pygraphviz."
        )
    try:
        finished = subprocess.run(
            command,
            input=dot_text.encode(),
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise DrawingError(
            f"Graphviz did not finish within {timeout_s:g} s: draw fewer nodes, or allow more time."
        ) from None
    except OSError as error:
        raise DrawingError(f"Graphviz can't be started: {error.strerror}.") from error
    if finished.returncode or not finished.stdout:
        said = finished.stderr.decode(errors="replace").strip().splitlines()
        reason = clean(said[-1]) if said else f"it ended with {finished.returncode}"
        raise DrawingError(f"Graphviz could not draw the graph as {format}: {reason}.")
    return finished.stdout


def render_graph(
    trace: Trace,
    path: str | PathLike[str],
    format: str = "svg",  # noqa: A002
    *,
    graph_task: int | None = None,
    budget: int = DEFAULT_BUDGET,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> Drawing:
    """Draw one graph task into a file, and its DOT beside it, with the ending ``.dot``.

    Where Graphviz takes too long or fails, the edges become straight lines, then more is folded.
    The DOT that is left is always the last that was tried.

    Args:
        trace: where the graph task is recorded.
        path: the file to write.
        format: one of :data:`FORMATS`, or ``dot`` to write nothing but DOT.
        graph_task: its id; None: see :func:`agviz.graph.model.choose_graph_task`.
        budget: number of nodes to draw; more than that are folded.
        timeout_s: seconds for each attempt.

    Raises:
        agviz.errors.TraceError: no such graph task, or it has no graph.
        agviz.errors.DrawingError: nothing could be drawn, or the file can't be written.
    """
    if format != "dot":
        check_format(format)
    path = Path(path)
    dot_path = path if format == "dot" else path.with_suffix(".dot")
    graph = read_graph(trace, graph_task)
    failure = DrawingError("")
    for nodes, straight, compromise in (
        (budget, False, ()),
        (budget, True, ("edges are straight lines: with curves, Graphviz gave up",)),
        (min(budget, SMALL_BUDGET), True, ("little is drawn: with more, Graphviz gave up",)),
    ):
        picture = compose(graph, nodes)
        dot_text = draw_picture(picture, straight=straight).source
        _write(dot_path, dot_text.encode())
        if format == "dot":
            return Drawing(path, dot_path, picture.notes)
        try:
            content = render(dot_text, format, timeout_s)
        except DrawingError as error:
            failure = error
            if _command(format) is None:
                break
        else:
            _write(path, content)
            return Drawing(path, dot_path, (*compromise, *picture.notes))
    raise DrawingError(f"{failure} The graph as DOT is in {clean(str(dot_path))}.")


def check_format(format: str) -> None:  # noqa: A002
    """Raise DrawingError where nothing can be drawn in this format."""
    if format not in FORMATS:
        known = ", ".join(FORMATS)
        raise DrawingError(f"A graph can't be drawn as {clean(format)!r}: choose {known} or dot.")


def _command(format: str) -> list[str] | None:  # noqa: A002
    """The command that reads DOT and writes a picture; None where there is no Graphviz."""
    dot = shutil.which("dot")
    if dot is not None:
        return [dot, f"-T{format}"]
    if importlib.util.find_spec("pygraphviz") is None:
        return None
    # -P: a pygraphviz.py in the user's folder is not the one that is meant.
    return [sys.executable, "-P", "-c", BUNDLED, format]


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise DrawingError(f"{clean(str(path))} can't be written: {error.strerror}.") from error
