"""Graphs that get longer from backward pass to backward pass: how many nodes, and where from."""

from __future__ import annotations

import ast
import itertools
from collections import Counter
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from agviz.analysis.code_search import calls_itself, line_of_call, only_call, tree_of
from agviz.traces.rows import visible
from agviz.words.units import plural

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame, GraphTaskRow, NodeRow

_MOST_PASSES: Final = 200
"""Calls of backward looked at, the last ones."""
_LEAST_PASSES: Final = 4
_LEAST_RISES: Final = 3
_LEAST_GROWTH: Final = 1.2
"""The last graph beside the first."""
_MOST_NODES: Final = 20_000
"""A larger graph is not read."""
_SHARE: Final = 0.5
"""Of the growth that one cause has to explain."""
_MOST_SHOWN: Final = 8
_PARAMETRIZE: Final = ("torch/nn/utils/parametrize.py", "torch/nn/utils/parametrizations.py")

_REGISTERING: Final = frozenset(
    {"register_parametrization", "weight_norm", "spectral_norm", "orthogonal"}
)


class GrowthCause(Enum):
    """Why a graph grows."""

    EARLIER = auto()
    """It reaches back into the forward of earlier passes."""
    WRAPPED = auto()
    """A function is inside of itself once more each time."""
    PARAMETRIZED = auto()
    """A parametrization is on top of those before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphGrowth:
    """A backward pass that gets longer each time."""

    cause: GrowthCause
    passes: tuple[tuple[int, int], ...]
    """Graph task and number of nodes of each, in order."""
    frame: Frame | None
    """The line to look at."""
    name: str
    """Of the function that is inside of itself, or the nodes that are new; may be empty."""
    carried: Frame | None
    """The line of the earlier forward that the graph leads back to; None: not known."""
    graph_task: None = None

    @property
    def heading(self) -> str:
        """How long it was first and last."""
        (first, few), (last, many) = self.passes[0], self.passes[-1]
        return (
            f"the graph grows with each pass: {few:,} nodes in backward pass {first},"
            f" {many:,} in pass {last}"
        )

    @property
    def paragraph(self) -> str:
        """Why, and what to do."""
        return " ".join(self._sentences())

    def _sentences(self) -> Iterator[str]:
        slower = "So each step is slower, and takes more memory, than the one before."
        if self.cause is GrowthCause.EARLIER:
            made = "" if self.carried is None else f", made at {self.carried}"
            yield (
                f"It leads back into the forward of earlier passes: this line uses a tensor of the"
                f" pass before with its graph{made}. {slower} Where gradients through earlier steps"
                " are not meant, carry it over with .detach()."
            )
        elif self.cause is GrowthCause.WRAPPED:
            of = f" {self.name}" if self.name else " the same function"
            yield (
                f"In each pass{of} is called inside of itself once more: something wraps what is"
                f" wrapped already. {slower} Wrap it once, before the loop, or wrap the original."
            )
        else:
            yield (
                "A parametrization (weight_norm, spectral_norm or another) is registered again on"
                f" a parameter that has it. {slower} Register it once, before the loop, or remove"
                " the old one with torch.nn.utils.parametrize.remove_parametrizations."
            )

    def details(self) -> Iterator[str]:
        """What the answer rests on, line by line."""
        for number, nodes in self.passes[-_MOST_SHOWN:]:
            yield f"backward pass {number}: {plural(nodes, 'node')}"

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "kind": "graph_growth",
            "cause": self.cause.name.lower(),
            "passes": [list(each) for each in self.passes],
            "name": self.name,
            "carried": None if self.carried is None else str(self.carried),
        }


def graph_growth(trace: Trace) -> GraphGrowth | None:
    """A backward pass of one line that gets longer each time, where the reason is known.

    Raises:
        agviz.errors.TraceError: the file is damaged.
    """
    for tasks in _growing(trace):
        found = _carried(trace, tasks) or _wrapped(trace, tasks) or _parametrized(trace, tasks)
        if found is not None:
            return found
    return None


def _growing(trace: Trace) -> Iterator[list[GraphTaskRow]]:
    """Calls of one line whose graphs never get shorter, and longer more than once or twice."""
    lasts = (
        task
        for task in reversed(trace.graph_tasks.outermost)
        if 0 < task.nodes <= _MOST_NODES and not task.traced
    )
    tasks = list(itertools.islice(lasts, _MOST_PASSES))[::-1]
    if len({task.nodes for task in tasks}) <= _LEAST_RISES:
        return
    by_line: dict[tuple[bool, Frame | None], list[GraphTaskRow]] = {}
    for task in tasks:
        key = task.accumulate_grad, visible(trace.call_site(task.id))
        by_line.setdefault(key, []).append(task)
    for alike in by_line.values():
        rises = [after.nodes - before.nodes for before, after in itertools.pairwise(alike)]
        if len(alike) < _LEAST_PASSES or min(rises) < 0 or not any(rises[-len(rises) // 2 :]):
            continue
        is_longer = alike[-1].nodes >= _LEAST_GROWTH * alike[0].nodes
        if is_longer and sum(rise > 0 for rise in rises) >= _LEAST_RISES:
            yield alike


def _made(
    cause: GrowthCause,
    tasks: Sequence[GraphTaskRow],
    frame: Frame | None,
    name: str = "",
    carried: Frame | None = None,
) -> GraphGrowth:
    passes = tuple((task.id, task.nodes) for task in tasks)
    return GraphGrowth(cause=cause, passes=passes, frame=frame, name=name, carried=carried)


def _carried(trace: Trace, tasks: Sequence[GraphTaskRow]) -> GraphGrowth | None:
    """Whether the last graph leads into what had been made before the pass before."""
    before, last = tasks[-2], tasks[-1]
    until = max(trace.sequence_nrs(before.id), default=-1)
    nodes = trace.nodes(last.id)
    is_old = [node.sequence_nr is not None and node.sequence_nr <= until for node in nodes]
    if sum(is_old) < _SHARE * (last.nodes - tasks[0].nodes):
        return None
    for edge in trace.edges(last.id):
        producer, consumer = nodes[edge.producer], nodes[edge.consumer]
        is_new = producer.sequence_nr is not None and not is_old[edge.producer]
        if is_new and is_old[edge.consumer]:
            return _made(
                GrowthCause.EARLIER, tasks, producer.frame or consumer.frame, "", consumer.frame
            )
    return None


def _wrapped(trace: Trace, tasks: Sequence[GraphTaskRow]) -> GraphGrowth | None:
    """Whether the stacks of nodes are deeper each time, by one and the same function."""
    depths = [_deepest(trace.nodes(task.id)) for task in (tasks[0], tasks[-1])]
    deeper = depths[1] - depths[0]
    if not deeper:
        return None
    frame, times = deeper.most_common(1)[0]
    if times < _LEAST_RISES or calls_itself(trace, frame):
        return None
    owner = _class_around(trace, frame)
    wraps = only_call(trace, owner) if owner else None
    if wraps is not None:
        return _made(GrowthCause.WRAPPED, tasks, wraps, f"{owner}.{frame.function}")
    return _made(GrowthCause.WRAPPED, tasks, frame, frame.function)


def _deepest(nodes: Sequence[NodeRow]) -> Counter[Frame]:
    """Of each line of the user, how often it is in one stack at most."""
    most: Counter[Frame] = Counter()
    for stack in {node.stack for node in nodes}:
        most |= Counter(frame for frame in stack if not frame.hidden)
    return most


def _class_around(trace: Trace, frame: Frame) -> str:
    """The name of the class of whose method a line is; empty: of none."""
    return max(
        (
            (node.lineno, node.name)
            for node in ast.walk(tree_of(trace, frame.file))
            if isinstance(node, ast.ClassDef)
            and node.lineno <= frame.line <= (node.end_lineno or 0)
        ),
        default=(0, ""),
    )[1]


def _parametrized(trace: Trace, tasks: Sequence[GraphTaskRow]) -> GraphGrowth | None:
    """Whether it is parametrizations that make the nodes more."""
    first, last = (_of_parametrizations(trace.nodes(task.id)) for task in (tasks[0], tasks[-1]))
    if len(last) - len(first) < _SHARE * (tasks[-1].nodes - tasks[0].nodes):
        return None
    if _most_of_one(last) <= _most_of_one(first):  # there are more parameters that have one
        return None
    call = trace.call_site(tasks[-1].id)
    frame = line_of_call(trace, call, _REGISTERING.__contains__) or last[0].frame
    return _made(GrowthCause.PARAMETRIZED, tasks, frame)


def _most_of_one(nodes: Sequence[NodeRow]) -> int:
    """Nodes of the parametrizations of one module, at most."""
    owners = (f".{node.module}".partition(".parametrizations")[0] for node in nodes if node.module)
    return max(Counter(owners).values(), default=0)


def _of_parametrizations(nodes: Sequence[NodeRow]) -> list[NodeRow]:
    return [
        node
        for node in nodes
        if any(frame.file.replace("\\", "/").endswith(_PARAMETRIZE) for frame in node.stack)
    ]
