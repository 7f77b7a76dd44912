"""Graphs made by hand, one node at a time, as the rows that a trace would give."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agviz.graph.marks import Marks
from agviz.graph.model import build_graph
from agviz.traces.rows import (
    EdgeRow,
    GraphTaskRow,
    GraphTaskStatus,
    NodeRow,
    NodeStatus,
    NonFiniteCounts,
    ThreadRow,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz.graph.model import TaskGraph

THREADS = [ThreadRow(0, "MainThread", -1, 10), ThreadRow(1, "a", 0, 11), ThreadRow(2, "b", 1, 12)]


@dataclass
class Rows:
    """Nodes are executed in the order in which they are added, 10 µs each, 1 µs apart."""

    nodes: list[NodeRow] = field(default_factory=list)
    edges: list[EdgeRow] = field(default_factory=list)
    failed: bool = False

    def node(
        self,
        name: str,
        *producers: int,
        slot: int = 0,
        status: NodeStatus = NodeStatus.DONE,
        thread: int = 0,
        nan: int = 0,
        shape: Sequence[int] = (2, 3),
        **more: Any,
    ) -> int:
        """Add a node that is fed by ``producers``; returns its index."""
        index = len(self.nodes)
        for producer in producers:
            output = sum(edge.producer == producer for edge in self.edges[-64:])
            self.edges.append(EdgeRow(producer, output, index, slot))
        ran = status not in {NodeStatus.WAITING, NodeStatus.READY}
        self.failed |= status is NodeStatus.FAILED
        fields: dict[str, Any] = {
            "graph_task": 0,
            "index": index,
            "name": name,
            "short_name": name.rpartition("::")[2],
            "sequence_nr": 10_000_000 - index,
            "topological_nr": 0,
            "queue": -1,
            "num_inputs": slot + 1,
            "dependencies": len(producers),
            "parameter": None,
            "shape": None,
            "module": None,
            "stack": (),
            "status": status,
            "order": index + 1 if ran else None,
            "thread": thread if ran else None,
            "start_ns": index * 11_000 if ran else None,
            "end_ns": index * 11_000 + 10_000 if ran else None,
            "input_shapes": (tuple(shape),) * (slot + 1),
            "output_shapes": (),
            "nonfinite": NonFiniteCounts(nan, 0, 0),
        }
        self.nodes.append(NodeRow(**{**fields, **more}))
        return index

    def leaf(self, parameter: str, *producers: int, **more: Any) -> int:
        """Add an AccumulateGrad."""
        name = "torch::autograd::AccumulateGrad"
        fields = {"sequence_nr": None, "parameter": parameter, "shape": (3,)}
        return self.node(name, *producers, **{**fields, **more})

    @property
    def task(self) -> GraphTaskRow:
        """The graph task that the rows belong to."""
        return GraphTaskRow(
            id=0,
            parent=-1,
            parent_node=-1,
            reentrant_depth=0,
            keep_graph=False,
            create_graph=False,
            accumulate_grad=True,
            roots=1,
            inputs=0,
            thread=0,
            nodes=len(self.nodes),
            edges=len(self.edges),
            begin_seq=0,
            begin_ns=0,
            end_seq=1,
            end_ns=len(self.nodes) * 11_000,
            status=GraphTaskStatus.FAILED if self.failed else GraphTaskStatus.FINISHED,
            error="RuntimeError" if self.failed else "",
            message="a made-up failure" if self.failed else "",
            executed=sum(row.status is NodeStatus.DONE for row in self.nodes),
        )

    def graph(self, title: str = "train.py") -> TaskGraph:
        """The graph that they make."""
        bad = [row for row in self.nodes if row.nonfinite is not None and any(row.nonfinite)]
        first = min(bad, key=lambda row: row.order or 0, default=None)
        return build_graph(
            self.task,
            self.nodes,
            self.edges,
            THREADS,
            first_nonfinite=None if first is None else first.index,
            title=title,
            marks=self.marks(),
        )

    def marks(self) -> Marks:
        """A non-finite gradient flows along every edge of which both ends put one out."""
        bad = {row.index for row in self.nodes if row.nonfinite is not None and any(row.nonfinite)}
        return Marks(
            dtypes={(edge.producer, edge.output): "float32" for edge in self.edges},
            nonfinite=frozenset(
                (edge.producer, edge.output)
                for edge in self.edges
                if {edge.producer, edge.consumer} <= bad
            ),
        )


def linear(rows: Rows, module: str, producer: int, *, thread: int = 0, nan: int = 0) -> int:
    """What ``nn.Linear`` leaves behind; returns the node by which the gradient goes on."""
    addmm = rows.node("AddmmBackward0", producer, module=module, thread=thread, nan=nan)
    rows.leaf(f"{module}.bias", addmm, thread=thread)
    transposed = rows.node("TBackward0", addmm, module=module, thread=thread)
    rows.leaf(f"{module}.weight", transposed, thread=thread)
    return addmm


def block(rows: Rows, module: str, producer: int, *, thread: int = 0, nan: int = 0) -> int:
    """A residual block: two linears beside a shortcut."""
    add = rows.node("AddBackward0", producer, module=module, thread=thread)
    second = linear(rows, f"{module}.second", add, thread=thread)
    relu = rows.node("ReluBackward0", second, module=f"{module}.relu", thread=thread, nan=nan)
    first = linear(rows, f"{module}.first", relu, thread=thread)
    return rows.node("NativeLayerNormBackward0", first, add, module=f"{module}.norm", thread=thread)


def blocks(count: int, **at: Any) -> Rows:
    """A loss above ``count`` residual blocks, the last block first."""
    rows = Rows()
    last = rows.node("MeanBackward0", shape=())
    for number in reversed(range(count)):
        last = block(rows, f"blocks.{number}", last, **at)
    return rows
