"""Drawing a graph: what to do when Graphviz takes long."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from agviz.errors import DrawingError
from agviz.export import renderers
from agviz.export.dot import compose_view, draw_picture
from agviz.export.look import Look
from agviz.export.page import page
from agviz.export.pass_timeline import PassTimeline
from agviz.export.renderers import TIMEOUT_S, NoGraphvizError
from agviz.graph.picture import UNREADABLE, WIDEST
from agviz.graph.reading import read_view
from agviz.graph.view import DEFAULT_BUDGET, PAGE_BUDGET, GraphView
from agviz.traces.nodes import undisturbed
from agviz.words.safe import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from os import PathLike

    from agviz.graph.model import TaskGraph
    from agviz.graph.picture import GraphLayout
    from agviz.traces.reader import Trace

FORMATS = ("svg", "png", "pdf")
"""What Graphviz draws."""
SMALL_BUDGET = 60
"""Nodes drawn when everything else took too long."""
MOST_NARROWER = 4
"""Pictures drawn until the text of one can be read."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """What :func:`render_graph` wrote."""

    path: Path
    dot: str
    """The same as DOT."""
    notes: tuple[str, ...]
    """What was folded or simplified, in sentences; empty where the picture shows everything."""
    graph_tasks: tuple[int, ...]
    """What is drawn: a graph task, then those inside of it."""
    nodes: int
    """How many these have in all, whatever the view leaves out of them."""
    edges: int


def render(dot_text: str, format: str, timeout_s: float = TIMEOUT_S) -> bytes:  # noqa: A002
    """Draw ``dot_text``.

    Args:
        dot_text: a graph in DOT.
        format: one of :data:`FORMATS`.
        timeout_s: seconds after which Graphviz is killed.

    Raises:
        agviz.errors.DrawingError: it took too long, failed, or there is no Graphviz that can.
    """
    check_format(format)
    return renderers.run(renderers.choose(), dot_text, format, timeout_s)


def render_graph(
    trace: Trace,
    path: str | PathLike[str],
    format: str = "svg",  # noqa: A002
    *,
    view: GraphView | None = None,
    look: Look | None = None,
    other: Trace | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Drawing:
    """Draw one graph task into a file.

    Where Graphviz takes too long or fails, the edges become straight lines, then more is folded.
    Where nothing can be drawn, the last DOT is left instead of it, with the ending ``.dot``.

    Args:
        trace: where the graph task is recorded.
        path: the file to write.
        format: one of :data:`FORMATS`, ``html``, or ``dot`` to write nothing but DOT.
        view: what is drawn of it.
        look: colours and links.
        other: another recording, with which it is compared.
        timeout_s: seconds for each attempt.

    Raises:
        agviz.errors.AgvizError: there is no such node, parameter or event.
        agviz.errors.TraceError: no such graph task, or it has no graph.
        agviz.errors.DrawingError: nothing could be drawn, or the file can't be written.
    """
    path = Path(path)
    tried: list[str] = []
    try:
        content, notes, graph = _draw(
            trace, format, view or GraphView(), look, other, timeout_s, tried.append
        )
    except DrawingError as error:
        if not tried:
            raise
        dot_path = path.with_suffix(".dot")
        _write(dot_path, tried[-1].encode())
        raise DrawingError(f"{error} The graph as DOT is in {clean(str(dot_path))}.") from error
    _write(path, content)
    tasks = [graph.task, *(inner.task for inner in graph.inside.values())]
    return Drawing(
        path,
        tried[-1],
        notes,
        tuple(task.id for task in tasks),
        sum(task.nodes for task in tasks),
        sum(task.edges for task in tasks),
    )


def drawn(
    trace: Trace,
    format: str = "svg",  # noqa: A002
    *,
    view: GraphView | None = None,
    look: Look | None = None,
    other: Trace | None = None,
    timeout_s: float = TIMEOUT_S,
) -> bytes:
    """The same as bytes; nothing is written."""
    return _draw(trace, format, view or GraphView(), look, other, timeout_s, lambda _: None)[0]


def _draw(
    trace: Trace,
    format: str,  # noqa: A002
    view: GraphView,
    look: Look | None,
    other: Trace | None,
    timeout_s: float,
    keep: Callable[[str], None],
) -> tuple[bytes, tuple[str, ...], TaskGraph]:
    """The picture, its notes and graph; ``keep`` gets each attempt's DOT before it is drawn."""
    if format not in {"dot", "html"}:
        check_format(format)
    with undisturbed():
        graph = read_view(trace, view, other)
    failure = DrawingError("")
    for attempt in attempts(graph, view, look, one_column=format == "html"):
        if format == "dot":
            keep(attempt.dot)
            return attempt.dot.encode(), attempt.notes, graph
        try:
            if format == "svg" and view.budget is None:
                content, notes = _readable(attempt, graph, view, look, timeout_s, keep)
                return content, notes, graph
            keep(attempt.dot)
            content = render(attempt.dot, "svg" if format == "html" else format, timeout_s)
        except NoGraphvizError:
            raise
        except DrawingError as error:
            failure = error
        else:
            if format == "html":
                theme = (look or Look()).theme
                ran = any(node.row.order is not None for node in graph.nodes)
                timeline = PassTimeline(trace, graph.task.id, theme) if ran else None
                content = page(attempt.picture, content.decode(), look, timeline).encode()
            return content, attempt.notes, graph
    raise failure


def _readable(
    attempt: DrawingVariant,
    graph: TaskGraph,
    view: GraphView,
    look: Look | None,
    timeout_s: float,
    keep: Callable[[str], None],
) -> tuple[bytes, tuple[str, ...]]:
    """An SVG in which the smallest text can be read, as far as folding helps, and its notes."""
    widest = WIDEST
    for _ in range(MOST_NARROWER):
        keep(attempt.dot)
        svg, notes = render(attempt.dot, "svg", timeout_s), attempt.notes
        wide = _width(svg)
        if wide <= WIDEST or UNREADABLE in notes:
            return svg, notes
        widest *= WIDEST / wide
        attempt = next(attempts(graph, view, look, widest=widest))
    return svg, (*notes, UNREADABLE)


def _width(svg: bytes) -> float:
    """How wide what Graphviz drew is, in points."""
    found = re.search(rb'viewBox="\S+ \S+ (\S+)', svg)
    return float(found[1]) if found else 0.0


class DrawingVariant(NamedTuple):
    """One way to draw a graph."""

    dot: str
    picture: GraphLayout
    notes: tuple[str, ...]
    """What was left out, folded or simplified."""


def attempts(
    graph: TaskGraph,
    view: GraphView,
    look: Look | None = None,
    *,
    one_column: bool = False,
    widest: float = WIDEST,
) -> Iterator[DrawingVariant]:
    """A graph as wanted, then with straight edges, then with most of it folded."""
    wanted = view.budget or (PAGE_BUDGET if one_column else None)
    for budget, hurry, compromise in (
        (wanted, False, ()),
        (wanted, True, ("edges are straight lines: with curves, Graphviz gave up",)),
        (
            min(wanted or DEFAULT_BUDGET, SMALL_BUDGET),
            True,
            ("little is drawn: with more, Graphviz gave up",),
        ),
    ):
        with undisturbed():
            picture = compose_view(
                graph, replace(view, budget=budget), one_column=one_column, widest=widest
            )
            dot = draw_picture(picture, look, hurry=hurry).source
        yield DrawingVariant(dot, picture, (*compromise, *picture.notes))


def check_format(format: str) -> None:  # noqa: A002
    """Raise DrawingError where nothing can be drawn in this format."""
    if format not in FORMATS:
        known = ", ".join((*FORMATS, "html"))
        raise DrawingError(f"A graph can't be drawn as {clean(format)!r}: choose {known} or dot.")


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise DrawingError(f"{clean(str(path))} can't be written: {error.strerror}.") from error
