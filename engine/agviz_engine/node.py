"""NodeRef: one torch node within one graph task."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from agviz_engine import native_node

if TYPE_CHECKING:
    from torch.autograd.graph import Node

ACCUMULATE_GRAD_SEQUENCE_NR = 2**64 - 1
"""``AccumulateGrad`` sets its own sequence number to ``UINT64_MAX``, so it runs at once."""


@functools.cache
def runs_natively(node_type: type) -> bool:
    """Whether nodes of this type can't be called and are run by a native one-node backward.

    True for AccumulateGrad, whose C++ hooks (DDP's reducer) only torch can call, and for custom
    Functions, which have no ``__call__``.
    """
    return is_accumulate_grad(node_type) or issubclass(node_type, native_node.FUNCTION_BASE)


@functools.cache
def is_accumulate_grad(node_type: type) -> bool:
    """Whether nodes of this type are leaves' gradient accumulators."""
    return node_type.__name__ == "AccumulateGrad"


class NodeRef:
    """A torch node with its place in a graph task: dense index, edges, numbers, device.

    ``index`` counts the nodes of the graph task in the order in which ``compute_dependencies``
    met them. ``next_edges[i]`` is the consumer of output ``i`` and the number of the input it
    enters, or None where that output is not needed by anyone. ``device`` is the index of the
    ReadyQueue: -1 is the caller's.
    """

    __slots__ = (
        "address",
        "device",
        "index",
        "next_edges",
        "node",
        "num_inputs",
        "runs_natively",
        "sequence_nr",
        "topological_nr",
        "words",
    )

    def __init__(self, node: Node, index: int) -> None:
        layout = native_node.calibrate()
        self.node = node
        self.index = index
        self.next_edges: tuple[tuple[NodeRef, int] | None, ...] = ()
        self.device = -1
        node_type = type(node)
        self.runs_natively = runs_natively(node_type)
        if issubclass(node_type, native_node.FUNCTION_BASE):
            self.address = native_node.address(node, layout.function_cdata)
        else:
            self.address = native_node.address(node)
        view = native_node.view(self.address)
        self.words: native_node.Words | None = view
        self.sequence_nr = view[layout.sequence_nr]
        self.topological_nr = view[layout.topological_nr]
        self.num_inputs = view[layout.num_inputs] & 0xFFFFFFFF

    @property
    def name(self) -> str:
        """Torch's name of the node, for example ``MulBackward0``."""
        return self.node.name()

    @property
    def is_accumulate_grad(self) -> bool:
        """Whether this is a leaf's gradient accumulator."""
        return is_accumulate_grad(type(self.node))

    def returned_an(self, message: str) -> str:
        """Words around what ``validate_outputs`` found wrong with this node's outputs."""
        return f"Function {self.name} returned an {message}"

    def release_variables(self) -> None:
        """Drop the saved tensors (``Node::release_variables`` of the node's own class).

        A node that torch runs has been released by torch.
        """
        if self.words is not None and not self.runs_natively:
            slot = native_node.calibrate().release_slot
            native_node.releaser(slot, self.words[0])(self.address)

    def __repr__(self) -> str:
        return f"<NodeRef {self.index} {self.name}>"
