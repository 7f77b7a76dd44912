"""ObservedNode: a node of the native engine's graph, known by what Python shows of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from agviz_engine.node import FUNCTION_BASE, NodeKind, NodeRef, kind_of

if TYPE_CHECKING:
    from torch.autograd.graph import Node

    from agviz_engine.graph_task import GraphTask


class ObservedNode(NodeRef):
    """A :class:`NodeRef` whose numbers were asked for once; :func:`observed_node` makes it."""

    __slots__ = ("sequence_nr", "topological_nr")
    sequence_nr: int
    """The later a node was made, the higher, and the sooner a queue gives it."""
    topological_nr: int
    """Length of the longest path to a leaf, once :func:`measure_paths` has worked it out."""


class _Saving(ObservedNode):
    __slots__ = ()
    saves_tensors = True


class _AccumulateGrad(ObservedNode):
    __slots__ = ()
    is_accumulate_grad = True


class _CustomFunction(ObservedNode):
    __slots__ = ()
    is_custom_function = True


_CLASSES = {
    NodeKind.OTHER: ObservedNode,
    NodeKind.SAVING: _Saving,
    NodeKind.ACCUMULATE_GRAD: _AccumulateGrad,
    NodeKind.CUSTOM_FUNCTION: _CustomFunction,
}
_class_of: dict[type, type[ObservedNode]] = {}


def observed_node(node: Node, index: int) -> ObservedNode:
    """An ObservedNode for a torch node."""
    node_type = type(node)
    kind = _class_of.get(node_type)
    if kind is None:
        kind = _CLASSES[kind_of(node_type)]
        if not issubclass(node_type, FUNCTION_BASE):  # programs make those, and let go of them
            _class_of[node_type] = kind
    # past __init__: to call a class takes as long as all of this
    ref: ObservedNode = object.__new__(kind)
    ref.node = node
    ref.index = index
    ref.next_edges = ()
    ref.device = -1
    ref.base = 0
    ref.sequence_nr = cast("Any", node)._sequence_nr()
    ref.topological_nr = 0
    return ref


def measure_paths(graph_task: GraphTask) -> None:
    """Work out the topological number of every node: the longest path from it to a leaf."""
    remaining = graph_task.dependencies[:]
    order: list[Any] = [ref for ref in graph_task.nodes if not remaining[ref.index]]
    for ref in order:
        for edge in ref.next_edges:
            if edge is not None:
                child = edge[0]
                left = remaining[child.index] = remaining[child.index] - 1
                if not left:
                    order.append(child)
    for ref in reversed(order):
        longest = 0
        for edge in ref.next_edges:
            if edge is not None and edge[0].topological_nr >= longest:
                longest = edge[0].topological_nr + 1
        if longest and not ref.is_graph_root:
            ref.topological_nr = longest
