"""The tensors that a stopped program lets one look at, in a few lines each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agviz.traces.health import HealthRow
from agviz.tui.histogram import Sample
from agviz.tui.model import Measure
from agviz.tui.tensor_lines import Entry, measured
from agviz.tui.text import Span, left
from agviz.words.shapes import write_shape
from agviz.words.units import size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agviz.debugger.messages import StopTensor
    from agviz.tui.model import View

_LABEL: Final = 15
_WORDS: Final = {"grad": ".grad", "parameter": "parameter", "gradient": "gradient"}


def stop_tensors(view: View, width: int) -> Iterator[Entry]:
    """Lines of at most ``width`` cells; none where the playhead is not where the program is.

    ``enter`` on one of them prints a part of that tensor.
    """
    if not view.tensors:
        return
    yield Entry([])
    yield Entry([Span("Tensors at this stop", "heading")])
    for each in view.tensors:
        wanted = f"print {each.what} {each.name}".rstrip() + " ["
        for entry in _lines(each, width):
            yield Entry(entry.line, command=wanted)
    yield Entry([])


def _lines(each: StopTensor, width: int) -> Iterator[Entry]:
    health = each.health
    title = _WORDS.get(each.what, f"{each.what} {each.name}")
    room = max(8, width - _LABEL - 11)
    dimensions = write_shape(health.shape, "shape not known")
    yield Entry(
        [
            Span(left(title, _LABEL - 1) + " ", "muted"),
            Span(left(dimensions, min(room, 18)), "name"),
            Span(f" {size(health.nbytes):>10}" if health.nbytes else "", "number"),
        ]
    )
    row = HealthRow(-1, -1, "", 0, -1, *health)
    yield from measured(Measure(row, _sample(each), ""), width)


def _sample(each: StopTensor) -> Sample | None:
    found, health = each.sample, each.health
    if found is None:
        return None
    low, high = health.min or 0.0, health.max or 0.0
    return Sample(health.shape or (), found.first, found.counts, low, high)
