"""Where the releases of torch differ that the engine runs on, each difference named once.

What torch has is asked of torch, not of its version number. Importing this reads no memory; where
nodes and tensors keep what is measured by :mod:`agviz_engine.torch_layout`.

==========================================  ==============  =======================================
difference                                  releases        where it is dealt with
==========================================  ==============  =======================================
size of an edge, place of a node's fields   all             measured: :mod:`.torch_layout`
a custom Function's Python object does      2.10 to 2.12    :func:`function_keeps_node`,
not keep its node alive                                     :func:`is_node_alive`
the grad layout policy can be turned off    2.13 and newer  :func:`is_grad_layout_enforced`
a Function gets what a ``grad`` of          2.14 and newer  :mod:`.gradient_edge`: the same way
functorch wrapped without the wrapper                       in all releases
``torch.autograd.graph.node_creation_hook``  2.14 and newer  :func:`has_node_creation_hook`
==========================================  ==============  =======================================
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor
    from torch.autograd.graph import Node

_C = cast("Any", torch._C)


_Accessors: TypeAlias = "tuple[Callable[[], Any], Callable[[Any], None]]"
"""How to read a thread-local of torch, and how to write it."""


_grad_layout_policy: tuple[_Accessors, ...] = ()
if hasattr(_C, "_is_grad_layout_enforcement_enabled"):
    _grad_layout_policy = (
        (_C._is_grad_layout_enforcement_enabled, _C._set_grad_layout_enforcement_enabled),
    )


def _always() -> bool:
    return True


is_grad_layout_enforced: Callable[[], bool] = (
    _grad_layout_policy[0][0] if _grad_layout_policy else _always
)
"""Whether AccumulateGrad steals only gradients laid out like their leaf, on this thread."""


@functools.cache
def autograd_state() -> tuple[_Accessors, ...]:
    """``c10/core/AutogradState.h``, gradient mode apart."""
    return (
        (_C._is_fwd_grad_enabled, _C._set_fwd_grad_enabled),
        (_C._is_view_replay_enabled, _C._set_view_replay_enabled),
        (_C._get_graph_exec_group, _C._set_graph_exec_group),
        *_grad_layout_policy,
    )


def has_node_creation_hook() -> bool:
    """Whether torch calls back for each node that a forward makes."""
    return hasattr(torch.autograd.graph, "node_creation_hook")


def found() -> dict[str, str]:
    """What this torch turned out to be like, difference by difference."""
    return {
        "node of a custom Function": (
            "kept by its Python object" if function_keeps_node() else "kept by its graph only"
        ),
        "grad layout policy": "there" if _grad_layout_policy else "not there",
        "node_creation_hook": "there" if has_node_creation_hook() else "not there",
    }


class _Nothing(torch.autograd.Function):
    """A custom Function whose node is looked at after its output has died."""

    @staticmethod
    def forward(_ctx: Any, value: Tensor) -> Tensor:
        return value.clone()


@functools.cache
def function_keeps_node() -> bool:
    """Whether the Python object of a custom Function's node keeps the C++ node alive.

    Where it does not, only the graph does, and whoever follows the object's pointer has to hold a
    tensor of that graph.
    """
    with torch.enable_grad():
        node = cast("Any", _Nothing).apply(torch.ones((), requires_grad=True)).grad_fn
    return is_node_alive(node)


def is_node_alive(node: Node) -> bool:
    """Whether there is still a C++ node behind a Python object of one."""
    try:
        cast("Any", node)._sequence_nr()
    except RuntimeError:
        return False
    return True
