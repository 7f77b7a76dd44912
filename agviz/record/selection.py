"""Which calls of backward, and events of which nodes, are recorded: ``--steps``, ``--nodes``."""

from __future__ import annotations

import itertools
import sys
import threading
from typing import TYPE_CHECKING, Any

from agviz.measure.values import NUMBERS
from agviz.traces import codec
from agviz_engine.events import NO_GRAPH_TASK

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Sequence

    from agviz_engine.events import GraphTaskBegun, GraphTaskFailed


class Selection:
    """Chooses rows.

    Args:
        steps: calls of backward, counted from 0 without reentrant ones; None: all.
        nodes: found in the name, parameter or module of a node that is chosen; None: all are.
    """

    def __init__(self, steps: range | None, nodes: re.Pattern[str] | None) -> None:
        self._steps = steps
        self._nodes = nodes
        self._next_step = itertools.count().__next__
        self._wanted = {NO_GRAPH_TASK}
        self._chosen: dict[int, set[int]] = {}
        """Nodes whose events are kept, by graph task under way."""
        self._gone_back: dict[int, bool] = {}
        """By thread: whether the call of backward was chosen that goes on as another graph task."""
        self._here = threading.local()
        """The ``seqs`` of the rows that were chosen among those this thread gave last."""

    @property
    def has_all_steps(self) -> bool:
        """Whether every call of backward is recorded."""
        return self._steps is None

    @property
    def has_everything(self) -> bool:
        """Whether nothing is left out."""
        return self._steps is None and self._nodes is None

    def __str__(self) -> str:
        """What is recorded, in words; empty for everything."""
        chosen = []
        if self._steps is not None:
            chosen.append(f"only the backward passes {_in_words(self._steps)}")
        if self._nodes is not None:
            chosen.append(f"only the events of nodes that match {self._nodes.pattern!r}")
        return ", ".join(chosen)

    def begin(self, event: GraphTaskBegun) -> None:
        """Decide about a graph task."""
        if self._steps is not None:
            parent = event.parent
            if (is_wanted := self._gone_back.pop(event.thread, None)) is None:
                is_wanted = (
                    self._next_step() in self._steps if parent < 0 else parent in self._wanted
                )
            if is_wanted:
                self._wanted.add(event.graph_task)

    def went_back(self, event: GraphTaskFailed) -> None:
        """A graph task begins next on this thread that is the same call of backward."""
        self._gone_back[event.thread] = self.has(event.graph_task)

    def end(self, graph_task: int) -> None:
        """Forget the nodes of a graph task."""
        self._chosen.pop(graph_task, None)

    def has(self, graph_task: int) -> bool:
        """Whether a graph task that has begun is recorded."""
        return self._steps is None or graph_task in self._wanted

    def choose(
        self,
        graph_task: int,
        names: Sequence[str],
        parameters: Sequence[str],
        modules: Callable[[], Sequence[str]],
    ) -> bytes:
        """Choose among the nodes of a graph task.

        Args:
            graph_task: theirs.
            names: of each.
            parameters: the same; one text where it is the same for all.
            modules: the same.

        Returns:
            Of each node whether its events are kept; one truth where that is the same for all.
        """
        if self._nodes is None:
            return b"\1"
        found = chosen_nodes(self._nodes, names, parameters, modules)
        self._chosen.setdefault(graph_task, set()).update(found)
        return bytes(index in found for index in range(len(names)))

    def rows(self, rows: Sequence[Any]) -> list[Any]:
        """Those among the rows of events that are kept."""
        wanted = [row for row in codec.each(rows) if self.has_row(row)]
        self._here.seqs = {row[0] for row in wanted}
        return list(itertools.chain.from_iterable(wanted))

    def numbers(self, numbers: Sequence[Any]) -> list[Any]:
        """Those among the rows of measurements that belong to rows that this thread just gave."""
        each = (numbers[i : i + NUMBERS] for i in range(0, len(numbers), NUMBERS))
        seqs = getattr(self._here, "seqs", ())
        return list(itertools.chain.from_iterable(row for row in each if row[0] in seqs))

    def has_row(self, row: Sequence[Any]) -> bool:
        """Whether the row of an event is kept."""
        graph_task = row[codec.GRAPH_TASK_COLUMN]
        if not self.has(graph_task):
            return False
        if self._nodes is not None and (columns := codec.NODES[row[codec.KIND_COLUMN]]):
            chosen = self._chosen.get(graph_task, ())
            return any(row[column] in chosen for column in columns)
        return True


def chosen_nodes(
    pattern: re.Pattern[str],
    names: Sequence[str],
    parameters: Sequence[str],
    modules: Callable[[], Sequence[str]],
) -> set[int]:
    """The nodes in whose name, parameter or module a regular expression is found.

    Args:
        pattern: that.
        names: of each node.
        parameters: the same; one text where it is the same for all.
        modules: the same.
    """
    columns = [c * len(names) if len(c) == 1 else c for c in map(list, (parameters, modules()))]
    texts = zip(names, *columns, strict=True)
    return {index for index, of_one in enumerate(texts) if any(map(pattern.search, of_one))}


def _in_words(steps: range) -> str:
    last = "" if steps.stop >= sys.maxsize else str(steps.stop)
    every = "" if steps.step == 1 else f", one in {steps.step}"
    return f"{steps.start}:{last}{every}"
