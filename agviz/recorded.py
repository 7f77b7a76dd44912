"""A trace as it is handled in a notebook: everything at hand as tables, and it draws itself."""

from __future__ import annotations

import contextlib
import html
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, overload

from agviz.analysis.comparing import Tolerance
from agviz.analysis.diff import diff
from agviz.analysis.explanation import explain
from agviz.analysis.failure import failure
from agviz.analysis.why import why
from agviz.errors import AgvizError, DrawingError
from agviz.export.choices import make_look, make_view
from agviz.graph.reading import read_view
from agviz.graph.view import GraphView
from agviz.traces.event_row import EventRow
from agviz.traces.reader import Trace
from agviz.traces.rows import ExecutionRow, NodeRow, NonFiniteRow
from agviz.words.units import backward_passes, duration, plural
from agviz_engine.events import NO_GRAPH_TASK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from os import PathLike

    from agviz.analysis.diff_words import TraceDiff
    from agviz.analysis.explanation import Explanation
    from agviz.analysis.failure import Failure
    from agviz.analysis.gradients import Gradients
    from agviz.export.digraph import Picture
    from agviz.traces.engine_state import EngineState
    from agviz.traces.rows import EdgeRow, GraphTaskRow
    from agviz_engine.events import Event

_PER_PAGE = 5_000
_MOST_ROWS = 20
_SECONDS_TO_DRAW = 10.0


class EventList(Sequence[EventRow]):
    """The events of a trace in order, read piece by piece when they are asked for."""

    def __init__(self, trace: Trace, graph_task: int | None = None) -> None:
        self._trace = trace
        self._graph_task = graph_task

    def __len__(self) -> int:
        return self._trace.event_count(self._graph_task)

    @overload
    def __getitem__(self, index: int) -> EventRow: ...
    @overload
    def __getitem__(self, index: slice) -> list[EventRow]: ...
    def __getitem__(self, index: int | slice) -> EventRow | list[EventRow]:
        if isinstance(index, slice):
            places = range(len(self))[index]
            if not places:
                return []
            first, last = min(places), max(places)
            rows = self._page(first, last - first + 1)
            return [rows[place - first] for place in places]
        return self._page(range(len(self))[index], 1)[0]

    def __iter__(self) -> Iterator[EventRow]:
        for offset in range(0, len(self), _PER_PAGE):
            yield from self._page(offset, _PER_PAGE)

    def __repr__(self) -> str:
        shown = [*map(repr, self[:_MOST_ROWS]), *["…"] * (len(self) > _MOST_ROWS)]
        return "\n".join([plural(len(self), "event"), *shown])

    def _page(self, offset: int, limit: int) -> list[EventRow]:
        found = self._trace.events(self._graph_task, offset, limit)
        return [EventRow.of(event, self._trace.meta) for event in found]


class Recorded:
    """A trace whose rows are tables: ``pandas.DataFrame(t.nodes)``, ``pandas.DataFrame(t.events)``.

    All of it may raise :class:`agviz.errors.TraceError` where the file is damaged, or not there.

    Args:
        path: the trace.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        self._trace: Trace | None = None

    @property
    def trace(self) -> Trace:
        """Everything else that can be asked of a trace."""
        if self._trace is None:
            self._trace = Trace.open(self.path)
        return self._trace

    def close(self) -> None:
        """Let go of the file; it is opened again when something is asked."""
        if self._trace is not None:
            self._trace.close()
            self._trace = None

    @property
    def graph_tasks(self) -> list[GraphTaskRow]:
        """The calls of backward and grad, in order of creation."""
        return list(self.trace.graph_tasks)

    @property
    def nodes(self) -> list[NodeRow]:
        """The nodes of all graph tasks."""
        trace = self.trace
        return [node for task in trace.graph_tasks for node in trace.nodes(task.id)]

    @property
    def edges(self) -> list[EdgeRow]:
        """The edges of the graph task; of the first where there are several."""
        trace = self.trace
        return trace.edges(trace.graph_tasks[0].id) if trace.graph_tasks else []

    @property
    def events(self) -> EventList:
        """All events in order."""
        return EventList(self.trace)

    def story(self, node: NodeRow | ExecutionRow | NonFiniteRow) -> list[EventRow]:
        """Every event that concerns a node, in order."""
        index = node.index if isinstance(node, NodeRow) else node.node
        trace = self.trace
        return [EventRow.of(event, trace.meta) for event in trace.story(node.graph_task, index)]

    def first_nonfinite(self) -> NonFiniteRow | None:
        """The first output with NaN or infinities, or None."""
        return self.trace.first_nonfinite()

    def explain(self, graph_task: int | None = None) -> Explanation | None:
        """Why gradients are NaN or infinite: an answer to print, with everything it rests on.

        Args:
            graph_task: the call of backward or grad that is asked about; None: the first in which
                gradients of parameters were not finite.

        Returns:
            None where every gradient that was measured is finite.

        Raises:
            agviz.errors.AgvizError: the values of gradients were not recorded.
        """
        return explain(self.trace, graph_task)

    def failure(self, graph_task: int | None = None) -> Failure | None:
        """Why a backward pass failed for a saved tensor, or what holds one that has not ended.

        Its ``heading`` and ``paragraph`` are the answer, ``details()`` what it rests on.

        Args:
            graph_task: the call of backward or grad that is asked about; None: what has not ended,
                else the last that failed so.

        Returns:
            None where there is no such backward pass.
        """
        return failure(self.trace, graph_task)

    def why(self, parameter: str | None = None, graph_task: int | None = None) -> Gradients:
        """Why the gradient of a parameter is None or zero; ``print`` it, or look at its rows.

        Args:
            parameter: its name, or the path of a module; None: all that are known.
            graph_task: only this one; None: the last calls of backward, in any of which a parameter
                may have got its gradient.

        Raises:
            agviz.errors.AgvizError: no such parameter is known, or no backward was recorded.
        """
        return why(self.trace, parameter, graph_task)

    def state_at(self, event: EventRow | Event | NonFiniteRow | int) -> EngineState:
        """The engine's state right after an event, or the event with this ``seq``.

        Raises:
            agviz.errors.AgvizError: no graph task had begun by then.
        """
        trace = self.trace
        if isinstance(event, int):
            found = trace.events(offset=trace.position(event), limit=1)
            if not found or found[0].seq != event:
                raise AgvizError(f"{trace.path} holds no event {event}")
            event = found[0]
        seq, graph_task = event.seq, event.graph_task
        if graph_task == NO_GRAPH_TASK:
            begun = [task.id for task in trace.graph_tasks if task.begin_seq <= seq]
            if not begun:
                raise AgvizError(f"no graph task had begun when event {seq} happened")
            graph_task = begun[-1]
        return trace.state_at(graph_task, trace.position(seq + 1, graph_task))

    def diff(
        self,
        other: Recorded | str | PathLike[str],
        graph_tasks: tuple[int, int] | None = None,
        *,
        rtol: float = 0.0,
        atol: float = 0.0,
    ) -> TraceDiff:
        """Where this trace (A) and another one (B) part; ``str`` says it in a few sentences.

        Args:
            other: B, or its file.
            graph_tasks: compare only this graph task of A with that one of B; None: all.
            rtol: numbers may differ by this share of the largest magnitude in a gradient.
            atol: and by this much.

        Raises:
            agviz.errors.AgvizError: a tolerance is negative, or no number.
        """
        tolerance = Tolerance(rtol, atol)
        if isinstance(other, Recorded):
            return diff(self.trace, other.trace, graph_tasks=graph_tasks, tolerance=tolerance)
        with Trace.open(other) as opened:
            return diff(self.trace, opened, graph_tasks=graph_tasks, tolerance=tolerance)

    def draw(
        self,
        graph_task: int | None = None,
        *,
        by: str = "module",
        fold: str = "auto",
        budget: int | None = None,
        around: str | int | None = None,
        depth: int = 2,
        to: str | None = None,
        at: EventRow | Event | NonFiniteRow | int | None = None,
        diff: Recorded | str | PathLike[str] | None = None,
        saved: bool = False,
        theme: str = "light",
        links: str = "none",
    ) -> Picture:
        """The graph of a graph task, as the ``graphviz`` package has it: it shows itself.

        Args:
            graph_task: its id; None: one that failed, else the first with NaN or infinities, else
                the largest of the program's own. Those inside of it are drawn, too.
            by: what nodes are grouped by: ``module``, ``device`` or ``execution`` (nothing).
            fold: what is drawn as one beside what the budget demands: ``auto`` (nothing),
                ``repeats``, ``chains``.
            budget: number of nodes to draw (default 400); more than that are folded.
            around: a node and its neighbours: its number in execution, or its name, module or
                parameter.
            depth: how many edges away these are.
            to: what leads to this parameter.
            at: the state right after this event, or the one with this ``seq``.
            diff: another trace, laid over this one.
            saved: show which tensors nodes had saved.
            theme: ``light`` or ``dark``.
            links: ``file`` or ``vscode``: what opens the line that created a node.

        Raises:
            agviz.errors.AgvizError: there is no such node, parameter, event or choice.
        """
        from agviz.export.dot import compose_view, draw_picture

        seq = at if at is None or isinstance(at, int) else at.seq
        view = make_view(
            graph_task=graph_task,
            by=by,
            fold=fold,
            budget=budget,
            around=around,
            depth=depth,
            to=to,
            at=seq,
            saved=saved,
        )
        with contextlib.ExitStack() as stack:
            if isinstance(diff, Recorded):
                other: Trace | None = diff.trace
            else:
                other = None if diff is None else stack.enter_context(Trace.open(diff))
            graph = read_view(self.trace, view, other)
        return draw_picture(compose_view(graph, view), make_look(theme=theme, links=links))

    def svg(self, graph_task: int | None = None) -> str:
        """The graph of a graph task as SVG; by default of that which :meth:`draw` chooses.

        Raises:
            agviz.errors.DrawingError: Graphviz is absent, failed, or took too long.
        """
        from agviz.export.draw import drawn

        view = GraphView(graph_task=graph_task)
        return drawn(self.trace, "svg", view=view, timeout_s=_SECONDS_TO_DRAW).decode()

    def __repr__(self) -> str:
        tasks = self.graph_tasks
        passes = backward_passes(len(tasks), sum(task.parent >= 0 for task in tasks))
        return f"<trace {self.trace.path}: {passes}, {plural(len(self.events), 'event')}>"

    def _repr_svg_(self) -> str | None:
        return self._picture() if self.graph_tasks else None

    def _repr_html_(self) -> str:
        tasks = self.graph_tasks
        rows = [_cells(task) for task in tasks[:_MOST_ROWS]]
        heading = ("graph task", "call", "nodes", "executed", "time", "status")
        table = "".join(
            f"<tr>{''.join(f'<{cell}>{html.escape(str(value))}</{cell}>' for value in row)}</tr>"
            for cell, row in [("th", heading), *(("td", row) for row in rows)]
        )
        more = len(tasks) - len(rows)
        said = [html.escape(repr(self)), *[f"{more:,} more graph tasks"] * (more > 0)]
        first = self.first_nonfinite()
        if first is not None:
            place = first.parameter or first.module or f"node {first.node}"
            said.append(
                html.escape(f"non-finite gradients begin at {first.name} ({place}) of graph task")
                + f" {first.graph_task}"
            )
        picture = self._picture() if tasks else ""
        return f"<p>{'<br>'.join(said)}</p><table>{table}</table>{picture}"

    def _picture(self) -> str:
        try:
            drawn = self.svg()
        except DrawingError as error:
            return f"<p>{html.escape(str(error))}</p>"
        return drawn[drawn.index("<svg") :]


def _cells(task: GraphTaskRow) -> tuple[object, ...]:
    return (
        task.id,
        "backward" if task.accumulate_grad else "grad",
        f"{task.nodes:,}",
        f"{task.executed:,}",
        "" if task.end_ns is None else duration(task.end_ns - task.begin_ns),
        task.status.value,
    )
