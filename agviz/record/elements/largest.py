"""Where the largest element of a gradient comes from: ``agviz run --elements``."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from agviz.record.selection import chosen_nodes

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from agviz.record.elements.keeper import ElementKeeper
    from agviz.traces.elements import LocatedElements
    from agviz_engine.node import NodeRef

_MOST: Final = 2_000
"""Gradients of which the largest element is looked for, in a recording."""


class LargestElements:
    """Looks at what the nodes that are chosen put out; any thread may call.

    Args:
        chosen: found in the name, parameter or module of a node that is wanted.
        keeper: follows elements.
    """

    def __init__(self, chosen: re.Pattern[str], keeper: ElementKeeper) -> None:
        self._pattern = chosen
        self._keeper = keeper
        self._wanted: dict[int, set[int]] = {}
        """Nodes by graph task under way."""
        self._left = _MOST
        self._lock = threading.RLock()

    def begun(
        self,
        graph_task: int,
        names: Sequence[str],
        parameters: Sequence[str],
        modules: Callable[[], Sequence[str]],
    ) -> None:
        """A graph task is about to run that is recorded.

        Args:
            graph_task: its number.
            names: of its nodes.
            parameters: the same; one text where it is the same for all.
            modules: the same.
        """
        self._wanted[graph_task] = chosen_nodes(self._pattern, names, parameters, modules)

    def ended(self, graph_task: int) -> None:
        """None of its nodes runs any more."""
        self._wanted.pop(graph_task, None)

    def put_out(
        self, graph_task: int, ref: NodeRef, output: int, gradient: Tensor
    ) -> LocatedElements | None:
        """Where the largest element is of a finite gradient; None: the node is not wanted."""
        if ref.index not in self._wanted.get(graph_task, ()):
            return None
        with self._lock:
            self._left -= 1
            if self._left < 0:
                return None
        return self._keeper.of_largest(graph_task, ref, output, gradient)
