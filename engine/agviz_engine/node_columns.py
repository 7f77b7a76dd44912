"""What is known of all nodes of a graph task, column by column: asking each takes far longer."""

from __future__ import annotations

import ctypes
import sys
from array import array
from typing import TYPE_CHECKING

from agviz_engine.input_metadata import shapes_text
from agviz_engine.node import ACCUMULATE_GRAD_SEQUENCE_NR, SEQUENCE_NR, TOPOLOGICAL_NR

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz_engine.node import NodeRef

_SIGNED = (ctypes.c_int64 * 2**59).from_address(0)
"""As :data:`~agviz_engine.native_node.MEMORY`."""
_UNREGISTERED = "CppFunction"
"""Type of all C++ nodes for which torch has made none of their own."""
_names: dict[type, str] = {}
"""Of the nodes of a type, where it is the same for all."""


def names(refs: Sequence[NodeRef]) -> list[str]:
    """Torch's name of each."""
    return [_names.get(type(ref.node)) or _name(ref) for ref in refs]


def _name(ref: NodeRef) -> str:
    name = sys.intern(ref.name)
    node_type = type(ref.node)
    if ref.base and not ref.is_custom_function and node_type.__name__ != _UNREGISTERED:
        _names[node_type] = name
    return name


def sequence_nrs(refs: Sequence[NodeRef]) -> array[int]:
    """That of each; -1 in place of ``UINT64_MAX``, which leaves have."""
    return array(
        "q",
        [_SIGNED[ref.base + SEQUENCE_NR] if ref.base else _signed(ref.sequence_nr) for ref in refs],
    )


def _signed(number: int) -> int:
    return -1 if number == ACCUMULATE_GRAD_SEQUENCE_NR else number


def topological_nrs(refs: Sequence[NodeRef]) -> array[int]:
    """That of each."""
    return array(
        "q",
        [_SIGNED[ref.base + TOPOLOGICAL_NR] if ref.base else ref.topological_nr for ref in refs],
    )


def input_shapes(refs: Sequence[NodeRef]) -> list[str]:
    """Of the gradients that each expects, like ``[3, 4];[5]``; empty where not known."""
    return [shapes_text(ref) if ref.base else ref.input_shapes for ref in refs]
