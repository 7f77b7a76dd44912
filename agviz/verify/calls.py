"""A pass in one run: the calls of ``run_backward`` it consists of, and what came of each."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge, Node

from agviz.verify.state import gradient_of
from agviz.verify.values import Value, take
from agviz_engine.alive import instances
from agviz_engine.gradient_edge import leaf_edge
from agviz_engine.located_node import node_ref
from agviz_engine.torch_layout import retains_grad

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agviz.verify.state import ProgramState

_NODES = (Node, cast("Any", torch._C)._FunctionBase)
_LEAF = "torch::autograd::AccumulateGrad"


class BackwardCall:
    """A call of ``run_backward``: what it reaches, and what came of it.

    Nodes and tensors are known by their place in a walk from the roots, so that calls of several
    runs can be held against each other even where a run makes them anew (checkpointing).
    """

    def __init__(self, roots: Any, inputs: Sequence[Any]) -> None:
        self.labels = _walk(roots)
        """Of all nodes that the roots reach, while the call runs."""
        self.nodes = len(self.labels)
        self.tensors = [] if _in_a_transform() else _tensors(self.labels, inputs)
        """Those whose ``.grad`` the call may change, with the label of their node."""
        self.gradients: list[Value | None] = []
        """The ``.grad`` of each of them at the end."""
        self.returned: list[Value | None] = []
        self.order: dict[int, list[str]] = {}
        """By thread, the labels of the nodes in the order in which they ran."""
        self.seen = True
        """False where our engine handed the call on, so that its order is not known."""
        self.failed_at = ""
        """Label of the node that our engine saw fail."""
        self.hooks = 0

    def ran(self, thread: int, node: Node) -> None:
        """Note that ``node`` runs on ``thread``."""
        label = self.labels.get(node)
        if label is not None:  # the node in front of several roots has none
            self.order.setdefault(thread, []).append(label)

    def end(self, returned: Any) -> None:
        """Take down what came of it, and let go of the graph."""
        self.labels.clear()
        self.gradients = [take(gradient_of(tensor)) for _, tensor in self.tensors]
        if isinstance(returned, tuple):
            self.returned = [take(gradient) for gradient in returned]


@dataclass
class PassRun:
    """A pass on one engine."""

    before: ProgramState
    """As it was before the pass, of all that any run of it has reached so far."""
    native: bool
    watched: bool
    calls: list[BackwardCall] = field(default_factory=list)
    """The pass itself, then the reentrant calls made in it."""
    returned: Any = None
    error: BaseException | None = None
    not_taken: str = ""
    """Why something of it could not be taken down."""

    def failure(self) -> str:
        """The exception in words, or nothing."""
        return "" if self.error is None else f"{type(self.error).__name__}: {self.error}"

    def give(self) -> Any:
        """What the caller of the pass gets; it is no longer kept here."""
        returned, error = self.returned, self.error
        self.returned = self.error = None
        if error is None:
            return returned
        try:
            raise error
        finally:
            del error  # or this frame, which the traceback keeps, would keep the exception


def _walk(roots: Any) -> dict[Node, str]:
    found: dict[Node, str] = {}
    pending: deque[Any] = deque()
    for root in roots if isinstance(roots, tuple) else ():
        if isinstance(root, GradientEdge):
            pending.append(root.node)
        elif isinstance(root, Tensor) and root.grad_fn is not None:
            pending.append(root.grad_fn)
        elif isinstance(root, Tensor) and root.requires_grad and not _in_a_transform():
            pending.append(leaf_edge(root)[0])
    while pending:
        node = pending.popleft()
        if isinstance(node, _NODES) and node not in found:
            found[node] = f"{len(found)} {node.name()}"
            pending += [child for child, _ in node.next_functions if child is not None]
    return found


def _in_a_transform() -> bool:
    """Whether this runs inside ``torch.func.grad``, ``vmap`` or the like."""
    return bool(cast("Any", torch._C)._are_functorch_transforms_active())


def _tensors(labels: dict[Node, str], inputs: Sequence[Any]) -> list[tuple[str, Tensor]]:
    found = [
        (label, cast("Any", node).variable)
        for node, label in labels.items()
        if node.name() == _LEAF
    ]
    if any(map(_retains_grad, labels)):
        found += _that_retain(labels)
    known = {id(tensor) for _, tensor in found}
    found += [
        ("", given) for given in inputs if isinstance(given, Tensor) and id(given) not in known
    ]
    return found


def _retains_grad(node: Node) -> bool:
    return retains_grad(node_ref(node, 0).base)


def _that_retain(labels: dict[Node, str]) -> list[tuple[str, Tensor]]:
    """The tensors with ``retain_grad()`` that these nodes made. A node does not know its tensor."""
    found = [
        (labels[thing.grad_fn], thing)
        for thing in instances(Tensor)
        if not thing.is_leaf and thing.retains_grad and thing.grad_fn in labels
    ]
    return sorted(found, key=lambda pair: (int(pair[0].split()[0]), pair[1].output_nr))
