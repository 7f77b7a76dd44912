"""What becomes more with each step, or is done far more often than it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from agviz.analysis.graph_growth import GraphGrowth, GrowthCause, graph_growth
from agviz.analysis.hook_growth import hook_growth
from agviz.analysis.kept_graphs import KeptGraphs, kept_graphs
from agviz.analysis.longer_tensors import longer_tensors
from agviz.analysis.recomputed import recomputed
from agviz.analysis.repeated_backward import repeated_backward
from agviz.analysis.repeated_calls import repeated_calls
from agviz.analysis.stored_tensors import stored_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from agviz.analysis.hook_growth import HookGrowth
    from agviz.analysis.longer_tensors import LongerTensors
    from agviz.analysis.recomputed import Recomputed
    from agviz.analysis.repeated_backward import RepeatedBackward
    from agviz.analysis.repeated_calls import RepeatedCalls
    from agviz.analysis.stored_tensors import StoredTensors
    from agviz.traces.reader import Trace

Growth: TypeAlias = (
    "KeptGraphs | GraphGrowth | HookGrowth | LongerTensors"
    " | Recomputed | RepeatedBackward | RepeatedCalls | StoredTensors"
)

_QUESTIONS: Final[tuple[Callable[[Trace], Growth | None], ...]] = (
    *(kept_graphs, graph_growth, hook_growth, longer_tensors),
    *(recomputed, repeated_backward, repeated_calls),
)


def growth(trace: Trace) -> Iterator[Growth]:
    """All that is known of a recording in this respect.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    found = [each for each in (question(trace) for question in _QUESTIONS) if each is not None]
    # Where each pass makes a longer graph, what is kept of it grows by that, and not the reverse.
    found.sort(key=lambda each: getattr(each, "cause", None) in {None, GrowthCause.EARLIER})
    longer = {each.frame for each in found if isinstance(each, GraphGrowth) and each.frame}
    for each in found:
        if not (isinstance(each, KeptGraphs) and each.frame in longer):  # the same, by its effect
            yield each
    if not any(isinstance(each, KeptGraphs | GraphGrowth) for each in found):
        stored = stored_tensors(trace)  # else it is mostly the same
        if stored is not None:
            yield stored
