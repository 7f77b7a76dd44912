"""LocatedNode: a node whose C++ object was found in memory, so that asking it costs little."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

from agviz_engine.node import (
    FUNCTION_BASE,
    Columns,
    NodeKind,
    NodeRef,
    kind_of,
    name_of,
    names_by_type,
)
from agviz_engine.torch_layout import (
    NODE,
    leaf_hook_list,
    node_base,
    num_inputs,
    pointers,
    post_hooks,
    pre_hooks,
    python_hooks,
    releasers,
    sequence_nr,
    shapes_texts,
    signed_sequence_nr,
    signed_topological_nr,
    topological_nr,
    vtables,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.autograd.graph import Node

_new = object.__new__


class LocatedNode(NodeRef):
    """A :class:`NodeRef` with the word number of its C++ node."""

    __slots__ = ("num_inputs",)
    num_inputs: int

    @property
    def sequence_nr(self) -> int:
        """The later a node was made, the higher, and the sooner a queue gives it."""
        return sequence_nr[self.base]

    @property
    def topological_nr(self) -> int:
        """Length of the longest path to a leaf (NOTE [ Topological Number ] in torch)."""
        return topological_nr[self.base]

    @staticmethod
    def columns(refs: Sequence[NodeRef]) -> Columns:
        """What is known of each, in their order."""
        names = [names_by_type.get(type(ref.node)) or name_of(ref) for ref in refs]
        numbers = [signed_sequence_nr[ref.base] if ref.base else ref.sequence_nr for ref in refs]
        lengths = [
            signed_topological_nr[ref.base] if ref.base else ref.topological_nr for ref in refs
        ]
        counts = [ref.num_inputs for ref in refs]
        return Columns(names, array("q", numbers), array("q", lengths), shapes_texts(refs), counts)

    def release_variables(self) -> None:
        """Drop the saved tensors (``Node::release_variables`` of the node's own class)."""
        base = self.base
        releasers[vtables[base]](base << 3)

    def has_native_hooks(self) -> bool:
        """Whether some hooks of an AccumulateGrad were made in C++, as DDP's reducer does."""
        hooks = leaf_hook_list(self.node.variable)
        hooks += pre_hooks(self.base)
        hooks += post_hooks(self.base)
        return any(python_hooks(hook) is None for hook in hooks)


class _Saving(LocatedNode):
    __slots__ = ()
    saves_tensors = True


class _AccumulateGrad(LocatedNode):
    __slots__ = ()
    is_accumulate_grad = True


class _CustomFunction(LocatedNode):
    __slots__ = ()
    is_custom_function = True


_CLASSES = {
    NodeKind.OTHER: LocatedNode,
    NodeKind.SAVING: _Saving,
    NodeKind.ACCUMULATE_GRAD: _AccumulateGrad,
    NodeKind.CUSTOM_FUNCTION: _CustomFunction,
}


class _TypeFacts(NamedTuple):
    cdata: int
    """Byte offset of the pointer to the C++ node within the Python object."""
    kind: type[LocatedNode]


class _FactsByType(dict[type, _TypeFacts]):
    def __missing__(self, node_type: type) -> _TypeFacts:
        if issubclass(node_type, FUNCTION_BASE):
            # not kept: programs make such types, and let go of them
            return _TypeFacts(NODE.function_cdata, _CustomFunction)
        facts = _TypeFacts(object.__basicsize__, _CLASSES[kind_of(node_type)])
        self[node_type] = facts
        return facts


_facts = _FactsByType()


def node_ref(node: Node, index: int) -> LocatedNode:
    """A LocatedNode for a torch node."""
    cdata, kind = _facts[type(node)]
    ref = _new(kind)  # fields are set here: through __init__ each node costs a sixth more
    ref.node = node
    ref.index = index
    ref.next_edges = ()
    ref.device = -1
    ref.base = base = pointers[id(node) + cdata >> 3] >> 3  # node_base
    ref.num_inputs = num_inputs[base] & 0xFFFFFFFF
    return ref


def base_of(node: Node) -> int:
    """Word number of the C++ node behind ``node``."""
    return node_base(node, _facts[type(node)].cdata)
