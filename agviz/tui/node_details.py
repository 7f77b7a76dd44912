"""Everything that the inspector needs to know about one node, read in one go."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from agviz.analysis.places import place_of
from agviz.analysis.source import source_line
from agviz.tui import relatives
from agviz.tui.histogram import sample_of
from agviz.tui.model import Degree, Measure, NodeDetails, SourceLine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.traces.outline import Outline
    from agviz.traces.reader import Trace
    from agviz.traces.rows import EdgeRow, NodeRow

MOST_EDGES: Final = 200
"""Edges that are listed in each direction; shapes of outputs, too."""
_MOST_FRAMES: Final = 12
_MOST_MEASURES: Final = 64
_MOST_SLOTS: Final = 8


def read_node_details(trace: Trace, outline: Outline, graph_task: int, node: int) -> NodeDetails:
    """Read everything about a node."""
    row = trace.node(graph_task, node, most_outputs=MOST_EDGES)
    story = outline.story(node)
    into, edges_in = outline.edges_into(node, MOST_EDGES)
    edges_out, outputs = trace.fan_out(graph_task, node)
    return NodeDetails(
        row,
        tuple(story.events),
        tuple(story.arrived),
        tuple(trace.saved(graph_task, node)),
        tuple(into),
        tuple(trace.edges_from(graph_task, node, MOST_EDGES)),
        Degree(edges_in, edges_out, outputs),
        tuple(relatives.inside(trace, graph_task, node)),
        relatives.around(trace, graph_task),
        tuple(_measures(trace, graph_task, node)),
        tuple(_received(trace, graph_task, into)),
        tuple(_source(trace, row)),
        tuple(
            (located.value is None, said)
            for located in trace.located(graph_task, node)
            if (said := str(place_of(located)))
        ),
    )


def _received(
    trace: Trace, graph_task: int, into: Sequence[EdgeRow]
) -> Iterator[tuple[EdgeRow, Measure]]:
    """What came in where nothing was added up."""
    edges_of = Counter(edge.slot for edge in into)
    if len(into) == MOST_EDGES:  # there may be more into the last of them
        edges_of[into[-1].slot] += 1
    only = [edge for edge in into if edges_of[edge.slot] == 1]
    for edge in only[:_MOST_SLOTS]:
        for measure in _measures(trace, graph_task, edge.producer, edge.output):
            if measure.health.role == "output":
                yield edge, measure


def _measures(
    trace: Trace, graph_task: int, node: int, slot: int | None = None
) -> Iterator[Measure]:
    """What was measured of what came in and went out, with elements where they are in the file."""
    inside = trace.values(graph_task, node, slot) if trace.meta.values == "full" else []
    stored = {row.seq: row for row in inside}
    for health in trace.health(graph_task, node, slot, limit=_MOST_MEASURES):
        value = stored.get(health.seq)
        if value is None or value.unknown:
            yield Measure(health, None, "" if value is None else value.unknown)
        else:
            yield Measure(health, sample_of(trace.value_parts(health.seq)), "")


def _source(trace: Trace, row: NodeRow) -> Iterator[SourceLine]:
    frames = [frame for frame in reversed(row.stack) if not frame.hidden]
    for frame in frames[:_MOST_FRAMES]:
        yield SourceLine(frame, source_line(frame, trace.path))
