"""Graphs that are slow by their shape: writes into slices, and loops over elements.

Both are judged by what backward has to do, as times differ from machine to machine; of writes it is
asked besides whether they took a good part of the time that was measured.
"""

from __future__ import annotations

import ast
import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agviz.analysis.code_search import called_name, nodes_beside
from agviz.words.units import percent

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agviz.traces.reader import Trace
    from agviz.traces.rows import Frame, GraphTaskRow, NodeRow

_LEAST_WRITES: Final = 64
_WRITE: Final = "CopySlices"
_LEAST_NODES: Final = 1_000
_MOST_NODES: Final = 20_000
"""A larger graph is not read."""
_SHARE: Final = 0.5
"""Of all numbers that go through the pass, or of all nodes, that are the line's."""
_SHARE_OF_TIME: Final = 0.2
"""Of the time of all nodes, that writes take at least."""
_TINY: Final = 64
"""Numbers in the gradients of most of a loop's nodes."""
_DECIDING: Final = frozenset({"item", "multinomial", "numpy", "sample", "tolist"})
"""Methods by which a loop goes on from what it has computed, as an episode does: it can't be done
at once."""
_TIMES_AS_WIDE: Final = 8
"""Is a graph whose nodes mostly do not depend on each other, than it is deep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowShape:
    """A line whose nodes make most of the work of a pass, needlessly."""

    graph_task: int
    frame: Frame | None
    count: int
    """Nodes of the line."""
    of: int
    """Nodes of the pass."""
    written: int
    """Numbers in the buffer that is written into; 0: it is a loop over elements."""
    of_time: float = 0.0
    """Share of the time of all nodes that the writes took."""

    @property
    def heading(self) -> str:
        """What there is so much of."""
        if self.written:
            return (
                f"{self.count:,} writes into slices take {percent(self.of_time)} of backward pass"
                f" {self.graph_task}"
            )
        return (
            f"one line makes {self.count:,} of the {self.of:,} nodes of backward pass"
            f" {self.graph_task}"
        )

    @property
    def paragraph(self) -> str:
        """Why that is slow, and what to do."""
        if self.written:
            return (
                "In backward each such write (CopySlices) copies the gradient of the whole buffer,"
                f" {self.written:,} numbers, {self.count:,} times: the cost grows with the square"
                " of the length. Collect the parts in a list, and make the buffer once with"
                " torch.stack or torch.cat."
            )
        return (
            "They are small, a few numbers each, and mostly do not depend on each other: a Python"
            " loop over elements. Each node costs microseconds in forward and backward, whatever"
            " its size. Do the whole tensor at once: an elementwise function, indexing by a tensor,"
            " or torch.vmap."
        )

    def details(self) -> Iterator[str]:
        """What the answer rests on, line by line."""
        yield f"{self.count:,} of {self.of:,} nodes were made at {self.frame}"

    def as_json(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "kind": "slow_shape",
            "graph_task": self.graph_task,
            "writes": bool(self.written),
            "count": self.count,
            "nodes": self.of,
        }


def slow_shape(trace: Trace, graph_task: int | None = None) -> SlowShape | None:
    """A line that makes most of the largest pass, or of the one asked about, slow; None: none does.

    Raises:
        agviz.errors.TraceError: there is no such graph task, or the file is damaged.
    """
    if graph_task is None:
        every = trace.graph_tasks
        if not every:
            return None
        task = every[max(range(len(every)), key=every.nodes.__getitem__)]
    else:
        task = trace.graph_task(graph_task)
    if not _LEAST_WRITES <= task.nodes <= _MOST_NODES:
        return None
    labels = trace.node_labels(task.id, 0, task.nodes)
    if len(labels) < task.nodes:  # the recording was cut off before they were written
        return None
    if sum(label.name == _WRITE for label in labels) >= _LEAST_WRITES:
        return _writes(task, trace.nodes(task.id))
    if task.nodes >= max(_LEAST_NODES, _TIMES_AS_WIDE * trace.node(task.id, 0).topological_nr):
        return _loop(trace, task, trace.nodes(task.id))
    return None


def _writes(task: GraphTaskRow, nodes: Sequence[NodeRow]) -> SlowShape | None:
    by_line = Counter(node.frame for node in nodes if node.short_name == _WRITE)
    frame, count = by_line.most_common(1)[0]
    writes = [node for node in nodes if node.short_name == _WRITE and node.frame == frame]
    sizes = [_numbers(node) for node in writes]
    if count < _LEAST_WRITES or sum(sizes) < _SHARE * sum(map(_numbers, nodes)):
        return None
    lasted_ns, of_all_ns = (sum(node.duration_ns or 0 for node in some) for some in (writes, nodes))
    of_time = lasted_ns / max(1, of_all_ns)
    if of_time < _SHARE_OF_TIME:
        return None
    return SlowShape(
        graph_task=task.id,
        frame=frame,
        count=count,
        of=task.nodes,
        written=max(sizes),
        of_time=of_time,
    )


def _loop(trace: Trace, task: GraphTaskRow, nodes: Sequence[NodeRow]) -> SlowShape | None:
    by_line = Counter(node.frame for node in nodes if node.frame is not None)
    if not by_line:
        return None
    frame, count = by_line.most_common(1)[0]
    sizes = sorted(_numbers(node) for node in nodes if node.frame == frame)
    if count < max(_LEAST_NODES, _SHARE * task.nodes) or sizes[len(sizes) // 2] > _TINY:
        return None
    stack = next(node.stack for node in nodes if node.frame == frame)
    called = trace.call_site(task.id)
    if any(_decides(trace, each, called) for each in stack if not each.hidden):
        return None
    return SlowShape(graph_task=task.id, frame=frame, count=count, of=task.nodes, written=0)


def _decides(trace: Trace, line: Frame, called: Sequence[Frame]) -> bool:
    """Whether a loop around a line, of one pass, goes on from values that it has computed.

    Args:
        trace: holds the text.
        line: the line.
        called: where backward was called; a loop around that makes many passes.
    """
    beside = [
        each.line for each in called if (each.file, each.function) == (line.file, line.function)
    ]
    loops = [
        node
        for node in nodes_beside(trace, line)
        if isinstance(node, ast.For | ast.While)
        and _is_in(node, line.line)
        and not any(_is_in(node, each) for each in beside)
    ]
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and called_name(node) in _DECIDING
        for loop in loops
        for node in ast.walk(loop)
    )


def _is_in(loop: ast.For | ast.While, line: int) -> bool:
    return loop.lineno <= line <= (loop.end_lineno or loop.lineno)


def _numbers(node: NodeRow) -> int:
    """In the gradients that it receives."""
    return sum(math.prod(shape) for shape in node.input_shapes or ())
