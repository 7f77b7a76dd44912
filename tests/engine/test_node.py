"""What is read of all nodes at once, held against what torch says of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
import torch

import agviz_engine
from agviz_engine.instruments import Instrument
from agviz_engine.observe.observing_engine import observed
from tests.engine.programs import PROGRAMS

if TYPE_CHECKING:
    from agviz_engine.events import DependenciesComputed
    from agviz_engine.instruments import Live
    from agviz_engine.node import NodeRef

_LEAF = 2**64 - 1


class _Columns(Instrument):
    """Keeps what is read of the nodes of each graph task beside what torch says."""

    def __init__(self) -> None:
        self.read: list[tuple[Any, ...]] = []
        self.expected: list[tuple[Any, ...]] = []

    def dependencies_computed(self, event: DependenciesComputed, live: Live) -> None:
        assert live.graph_task is not None
        nodes = live.graph_task.nodes
        self.read += zip(*nodes[-1].columns(nodes), strict=True)
        self.expected += map(_asked, nodes)


def _asked(ref: NodeRef) -> tuple[Any, ...]:
    if ref.is_graph_root:
        return "torch::autograd::GraphRoot", ref.sequence_nr, 0, "", 0
    node = ref.node
    number = node._sequence_nr()
    shapes = [str(list(metadata.shape)) for metadata in node._input_metadata]
    number = -1 if number == _LEAF else number
    return node.name(), number, _longest(node), ";".join(shapes), len(shapes)


def _longest(node: Any) -> int:
    """Length of the longest path to a node without edges."""
    known: dict[Any, int] = {}
    stack = [node]
    while stack:
        edges = [edge for edge, _ in stack[-1].next_functions if edge is not None]
        unknown = [edge for edge in edges if edge not in known]
        stack += unknown
        if not unknown:
            known[stack.pop()] = 1 + max((known[edge] for edge in edges), default=-1)
    return known[node]


@pytest.mark.parametrize("engine", [agviz_engine.installed, observed], ids=["exact", "observed"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_columns_hold_what_torch_says_of_each_node(name: str, engine: Any) -> None:
    looked = _Columns()
    with engine(looked):
        PROGRAMS[name]()
    assert looked.read
    assert looked.read == looked.expected


def test_nodes_without_a_type_of_their_own_keep_their_names() -> None:
    looked = _Columns()
    make = cast("Any", torch._C)._functions
    x = torch.ones(2, requires_grad=True)
    undefined, error = make.UndefinedGrad()(x * 2), make.DelayedError("no", 1)(x * 3)
    for value in (undefined, error):
        with agviz_engine.installed(looked):
            try:
                value.sum().backward()
            except RuntimeError:
                continue
    assert looked.read
    assert looked.read == looked.expected
