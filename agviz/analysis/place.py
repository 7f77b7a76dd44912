"""A node in words: its name, where it belongs, the line that made it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agviz.traces.rows import NodeRow


def place(node: NodeRow) -> str:
    """``MulBackward0 of encoder.norm``, ``AccumulateGrad of head.weight``, ``MulBackward0``."""
    where = node.parameter or node.module
    return f"{node.short_name} of {where}" if where else node.short_name


def made_at(node: NodeRow) -> str:
    """`` (made at model.py:12 in forward)``; empty where that was not recorded."""
    return "" if node.line is None else f" (made at {node.line})"


def described(node: NodeRow) -> str:
    """Both, with the node's number."""
    line = "" if node.line is None else f", made at {node.line}"
    return f"{place(node)} (node {node.index}{line})"
