"""NodeRef: one torch node within one graph task."""

from __future__ import annotations

import re
import sys
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

from agviz_engine.torch_layout import (
    FUNCTION_BASE,
    NODE,
    node_base,
    num_inputs,
    release_variables,
    sequence_nr,
    shapes_text,
    signed_sequence_nr,
    signed_topological_nr,
    topological_nr,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.autograd.graph import Node

ACCUMULATE_GRAD_SEQUENCE_NR = 2**64 - 1
"""``AccumulateGrad`` sets its own sequence number to ``UINT64_MAX``, so it runs at once."""


_UNREGISTERED = "CppFunction"
"""Type of all C++ nodes for which torch has made none of their own."""
_names: dict[type, str] = {}
"""Of the nodes of a type, where it is the same for all."""


class Columns(NamedTuple):
    """What is known of many nodes, column by column. To ask one after the other is far slower."""

    names: list[str]
    sequence_nrs: array[int]
    """-1 in place of ``UINT64_MAX``, which leaves have."""
    topological_nrs: array[int]
    input_shapes: list[str]
    """Shapes of the gradients that each expects, like ``[3, 4];[5]``; empty: not known."""


class NodeRef:
    """A torch node with its place in a graph task: dense index, edges, numbers, device.

    ``index`` counts the nodes of the graph task in the order in which ``compute_dependencies``
    met them. ``next_edges[i]`` is the consumer of output ``i`` and the number of the input it
    enters, or None where that output is not needed by anyone. ``device`` is the index of the
    ReadyQueue: -1 is the caller's. ``base`` is the word number of the C++ node
    (:mod:`agviz_engine.torch_layout`), 0 for a node that torch does not know.

    A node of a custom Function has no ``__call__``; torch runs it, and releases it. Where
    ``saves_tensors`` is false, there is nothing for the engine to release. What a node is like is
    known by its class, because a graph may have very many nodes.
    """

    __slots__ = ("base", "device", "index", "next_edges", "node", "num_inputs")
    is_accumulate_grad = False
    is_custom_function = False
    saves_tensors = False

    def __init__(self, node: Node, index: int, cdata: int) -> None:
        self.node: Any = node
        self.index = index
        self.next_edges: tuple[tuple[NodeRef, int] | None, ...] = ()
        self.device = -1
        self.base = base = node_base(node, cdata)
        self.num_inputs = num_inputs[base] & 0xFFFFFFFF

    @property
    def name(self) -> str:
        """Torch's name of the node, for example ``MulBackward0``."""
        name: str = self.node.name()
        return name

    @property
    def sequence_nr(self) -> int:
        """The later a node was made, the higher, and the sooner a queue gives it."""
        return sequence_nr[self.base]

    @property
    def topological_nr(self) -> int:
        """Length of the longest path to a leaf (NOTE [ Topological Number ] in torch)."""
        return topological_nr[self.base] if self.base else 0

    @staticmethod
    def columns(refs: Sequence[NodeRef]) -> Columns:
        """Name, sequence number, topological number and input shapes of each, in their order."""
        names = [_names.get(type(ref.node)) or _name_of(ref) for ref in refs]
        numbers = [signed_sequence_nr[ref.base] if ref.base else ref.sequence_nr for ref in refs]
        lengths = [
            signed_topological_nr[ref.base] if ref.base else ref.topological_nr for ref in refs
        ]
        shapes = [shapes_text(ref) for ref in refs]
        return Columns(names, array("q", numbers), array("q", lengths), shapes)

    def returned_an(self, message: str) -> str:
        """Words around what ``validate_outputs`` found wrong with this node's outputs."""
        return f"Function {self.name} returned an {message}"

    def release_variables(self) -> None:
        """Drop the saved tensors (``Node::release_variables`` of the node's own class).

        Only for nodes with ``saves_tensors``.
        """
        release_variables(self.base)

    def __repr__(self) -> str:
        return f"<NodeRef {self.index} {self.name}>"


class _Saving(NodeRef):
    __slots__ = ()
    saves_tensors = True


class _AccumulateGrad(NodeRef):
    __slots__ = ()
    is_accumulate_grad = True


class _CustomFunction(NodeRef):
    __slots__ = ()
    is_custom_function = True


class _TypeFacts(NamedTuple):
    cdata: int
    """Byte offset of the pointer to the C++ node within the Python object."""
    kind: type[NodeRef]


class _FactsByType(dict[type, _TypeFacts]):
    def __missing__(self, node_type: type) -> _TypeFacts:
        if issubclass(node_type, FUNCTION_BASE):
            # not kept: programs make such types, and let go of them
            return _TypeFacts(NODE.function_cdata, _CustomFunction)
        kind: type[NodeRef] = NodeRef
        if node_type.__name__ == "AccumulateGrad":
            kind = _AccumulateGrad
        else:
            is_generated = re.search(r"Backward\d+$", node_type.__name__) is not None
            has_saved = any(name.startswith("_raw_saved_") for name in dir(node_type))
            if has_saved or not is_generated:
                kind = _Saving
        facts = self[node_type] = _TypeFacts(object.__basicsize__, kind)
        return facts


_facts = _FactsByType()


def node_ref(node: Node, index: int) -> NodeRef:
    """A NodeRef for a torch node."""
    cdata, kind = _facts[type(node)]
    return kind(node, index, cdata)


def base_of(node: Node) -> int:
    """Word number of the C++ node behind ``node``."""
    return node_base(node, _facts[type(node)].cdata)


def _name_of(ref: NodeRef) -> str:
    name = sys.intern(ref.name)
    node_type = type(ref.node)
    if ref.base and not ref.is_custom_function and node_type.__name__ != _UNREGISTERED:
        _names[node_type] = name
    return name
