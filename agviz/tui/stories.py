"""Stories: everything that the inspector needs to know about one node, read in one go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.analysis.source import source_line
from agviz.tui.histogram import sample_of
from agviz.tui.model import Measure, SourceLine, Story

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.traces.outline import Outline
    from agviz.traces.reader import Trace
    from agviz.traces.rows import NodeRow

_MOST_FRAMES: Final = 12
_MOST_MEASURES: Final = 64


def tell(trace: Trace, outline: Outline, graph_task: int, node: int) -> Story:
    """Read everything about a node."""
    row = trace.node(graph_task, node)
    story = outline.story(node)
    return Story(
        row,
        tuple(story.events),
        tuple(story.arrived),
        tuple(trace.saved(graph_task, node)),
        tuple(outline.edges_into(node)),
        tuple(trace.edges_from(graph_task, node)),
        tuple(_measures(trace, graph_task, node)),
        tuple(_source(trace, row)),
    )


def _measures(trace: Trace, graph_task: int, node: int) -> Iterator[Measure]:
    """What was measured of what came in and went out, with elements where they are in the file."""
    inside = trace.values(graph_task, node) if trace.meta.values == "full" else []
    stored = {row.seq: row for row in inside}
    for health in trace.health(graph_task, node, limit=_MOST_MEASURES):
        value = stored.get(health.seq)
        if value is None or value.unknown:
            yield Measure(health, None, "" if value is None else value.unknown)
        else:
            yield Measure(health, sample_of(trace.value_parts(health.seq)), "")


def _source(trace: Trace, row: NodeRow) -> Iterator[SourceLine]:
    frames = [frame for frame in reversed(row.stack) if not frame.hidden]
    for frame in frames[:_MOST_FRAMES]:
        yield SourceLine(frame, source_line(frame, trace.path))
