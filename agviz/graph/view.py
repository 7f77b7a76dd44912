"""What of a trace is drawn, and how it is arranged."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agviz.errors import AgvizError

DEFAULT_BUDGET = 400
PAGE_BUDGET = 1_500
"""Of a page that folds by itself."""


class By(StrEnum):
    """What nodes are grouped by."""

    EXECUTION = "execution"
    """By nothing: nodes are in the order in which they ran."""
    MODULE = "module"
    DEVICE = "device"
    """The thread that took them up."""


class FoldMode(StrEnum):
    """What is drawn as one."""

    AUTO = "auto"
    """As much as the budget demands."""
    REPEATS = "repeats"
    """Blocks of the same structure that follow each other, and then as ``auto``."""
    CHAINS = "chains"
    """These and nodes in a row, and then as ``auto``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphView:
    """A choice of what to draw; the default is everything, by module.

    Args:
        graph_task: id of the graph task; None: the user's pass that
            :func:`agviz.analysis.default_pass.default_pass` chooses.
        by: what nodes are grouped by.
        fold: what is drawn as one.
        budget: number of nodes to draw; more than that are folded. None: as many as can be read, at
            most 400; in HTML 1,500, of which the page folds as many as it needs to be readable.
        around: draw a node and its neighbours: its number in execution, or its name, module or
            parameter.
        depth: how many edges away neighbours are.
        to: draw what leads to this parameter.
        at: draw the state right after the event with this ``seq``.
        saved: show which tensors nodes had saved.
    """

    graph_task: int | None = None
    by: By = By.MODULE
    fold: FoldMode = FoldMode.AUTO
    budget: int | None = None
    around: str | int | None = None
    depth: int = 2
    to: str | None = None
    at: int | None = None
    saved: bool = False

    def __post_init__(self) -> None:
        if self.budget is not None and self.budget < 1:
            raise AgvizError(f"a picture of {self.budget} nodes can't be drawn: at least 1")
        if self.depth < 0:
            raise AgvizError(f"{self.depth} is no number of edges")
