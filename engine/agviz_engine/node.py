"""NodeRef: one torch node within one graph task."""

from __future__ import annotations

import re
import sys
from array import array
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch.autograd.graph import Node

ACCUMULATE_GRAD_SEQUENCE_NR = 2**64 - 1
"""``AccumulateGrad`` sets its own sequence number to ``UINT64_MAX``, so it runs at once."""


FUNCTION_BASE: type = cast("Any", torch._C)._FunctionBase
"""Base class of the Python objects of custom Functions' nodes."""


class NodeKind(Enum):
    """What the engine has to know of a node before it calls it."""

    OTHER = auto()
    SAVING = auto()
    """It may have saved tensors."""
    ACCUMULATE_GRAD = auto()
    CUSTOM_FUNCTION = auto()


def kind_of(node_type: type) -> NodeKind:
    """The kind of the nodes of a Python type."""
    if issubclass(node_type, FUNCTION_BASE):
        return NodeKind.CUSTOM_FUNCTION
    if node_type.__name__ == "AccumulateGrad":
        return NodeKind.ACCUMULATE_GRAD
    is_generated = re.search(r"Backward\d+$", node_type.__name__) is not None
    has_saved = any(name.startswith("_raw_saved_") for name in dir(node_type))
    return NodeKind.SAVING if has_saved or not is_generated else NodeKind.OTHER


class Columns(NamedTuple):
    """What is known of many nodes, column by column. To ask one after the other is far slower."""

    names: list[str]
    sequence_nrs: array[int]
    """-1 in place of ``UINT64_MAX``, which leaves have."""
    topological_nrs: array[int]
    input_shapes: list[str]
    """Shapes of the gradients that each expects, like ``[3, 4];[5]``; empty: not known."""
    nums_inputs: list[int]
    """Number of the gradients that each expects."""


_UNREGISTERED = "CppFunction"
"""Type of all C++ nodes for which torch has made none of their own."""
names_by_type: dict[type, str] = {}
"""Of the nodes of a type, where it is the same for all."""


def name_of(ref: NodeRef) -> str:
    """The name of a node of whose type none is known yet; from now on it is, if it is for all."""
    name = sys.intern(ref.name)
    node_type = type(ref.node)
    if not (ref.is_graph_root or ref.is_custom_function or node_type.__name__ == _UNREGISTERED):
        names_by_type[node_type] = name
    return name


_texts: dict[tuple[int, ...], str] = {}
"""Of shapes without symbols."""
_TEXTS_KEPT = 1 << 12


def shapes_of(metadata: Sequence[Any]) -> str:
    """Shapes of the inputs of a node, like ``[3, 4];[5]``; empty: not known."""
    try:
        return ";".join([_texts[tuple(each.shape)] for each in metadata])
    except (KeyError, TypeError):  # a new one, or one with symbols
        return _new_shapes_of(metadata)
    except RuntimeError:  # torch does not know a strided nested tensor's
        return ""


def _new_shapes_of(metadata: Sequence[Any]) -> str:
    texts = [str(each.shape) for each in metadata]
    if any(text.lower() != text.upper() for text in texts):  # "[2, j1, 3]" is a jagged tensor's
        return ""
    if len(_texts) >= _TEXTS_KEPT:
        _texts.clear()
    _texts.update(zip((tuple(each.shape) for each in metadata), texts, strict=True))
    return ";".join(texts)


class NodeRef:
    """A torch node with its place in a graph task: dense index, edges, numbers, device.

    ``index`` counts the nodes of the graph task in the order in which ``compute_dependencies``
    met them. ``next_edges[i]`` is the consumer of output ``i`` and the number of the input it
    enters, or None where that output is not needed by anyone. ``device`` is the index of the
    ReadyQueue: -1 is the caller's. ``base`` is the word number of the C++ node
    (:mod:`agviz_engine.torch_layout`), 0 for a node that torch does not know, and where nobody has
    looked: :class:`~agviz_engine.located_node.LocatedNode` has.

    A node of a custom Function has no ``__call__``; torch runs it, and releases it. Where
    ``saves_tensors`` is false, there is nothing for the engine to release. What a node is like is
    known by its class, because a graph may have very many nodes.
    """

    __slots__ = ("base", "device", "index", "next_edges", "node")
    is_graph_root = False
    """Whether it is a GraphRoot, which torch does not know as a node of Python."""
    is_accumulate_grad = False
    is_custom_function = False
    saves_tensors = False

    def __init__(self, node: Node, index: int) -> None:
        self.node: Any = node
        self.index = index
        self.next_edges: tuple[tuple[NodeRef, int] | None, ...] = ()
        self.device = -1
        self.base = 0

    @property
    def name(self) -> str:
        """Torch's name of the node, for example ``MulBackward0``."""
        name: str = self.node.name()
        return name

    @property
    def sequence_nr(self) -> int:
        """The later a node was made, the higher, and the sooner a queue gives it."""
        return cast("int", self.node._sequence_nr())

    @property
    def topological_nr(self) -> int:
        """Length of the longest path to a leaf (NOTE [ Topological Number ] in torch).

        0: not known.
        """
        return 0

    @property
    def num_inputs(self) -> int:
        """Number of the gradients that the node expects."""
        return 0 if self.is_graph_root else len(self.node._input_metadata)

    @property
    def input_shapes(self) -> str:
        """Shapes of the gradients that the node expects, like ``[3, 4];[5]``; empty: not known."""
        return "" if self.is_graph_root else shapes_of(self.node._input_metadata)

    @staticmethod
    def columns(refs: Sequence[NodeRef]) -> Columns:
        """What is known of each, in their order."""
        numbers = [ref.sequence_nr for ref in refs]
        metadata = [() if ref.is_graph_root else ref.node._input_metadata for ref in refs]
        return Columns(
            [names_by_type.get(type(ref.node)) or name_of(ref) for ref in refs],
            array("q", [-1 if nr == ACCUMULATE_GRAD_SEQUENCE_NR else nr for nr in numbers]),
            array("q", [ref.topological_nr for ref in refs]),
            [*map(shapes_of, metadata)],
            [*map(len, metadata)],
        )

    def returned_an(self, message: str) -> str:
        """Words around what ``validate_outputs`` found wrong with this node's outputs."""
        return f"Function {self.name} returned an {message}"

    def release_variables(self) -> None:
        """Drop the saved tensors (``Node::release_variables`` of the node's own class).

        Only for nodes with ``saves_tensors`` of which ``base`` is known.
        """
        raise NotImplementedError

    def has_native_hooks(self) -> bool | None:
        """Whether some hooks of an AccumulateGrad were made in C++, as DDP's reducer does.

        None where ``base`` is not known.
        """
        return None

    def __repr__(self) -> str:
        return f"<NodeRef {self.index} {self.name}>"
