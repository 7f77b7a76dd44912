"""Derivatives without a graph that are added to a loss: constants, which train nothing.

Note [Meant as a constant]
What ``autograd.grad`` gives without ``create_graph`` is followed through the calls of the program
until it is added to something with a graph that depends on the parameters that the derivative
depends on, too. It is followed no more where the program shows that a number is meant: through
``detach``, under ``no_grad``, through its sign, as a factor. Derivatives by parameters count once
they are reduced to one number: before, they are steps, and first-order methods add them on purpose.
So is what is added to that by which it was differentiated: a step of the data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.utils.weak import WeakTensorKeyDictionary

from agviz.check.saved import nodes_to_run
from agviz.record.arguments import tensors_of
from agviz.traces.forward import READS_GRADIENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, MutableMapping, Sequence

_KEY: Final = "agviz.check.plain_derivative"
"""Under which a node's ``metadata`` has what it adds."""
_ADDING: Final = frozenset({"add", "cat", "radd", "rsub", "stack", "sub", "sum"})
_ENDING: Final = frozenset({"detach", "detach_", "sign", "sgn", "item", "__get__"})
_MOST_NODES: Final = 20_000


class PlainDerivative(NamedTuple):
    """A derivative that was taken without a graph."""

    captured: Any
    """The stack of the call that took it."""
    is_read: bool
    """Whether it was read of ``.grad``, not given by ``grad``."""
    leaves: frozenset[int]
    """Identities of the parameters on which it depends."""
    inputs: frozenset[int]
    """Identities of the tensors by which was differentiated."""
    is_step: bool = False
    """Whether it may be one: it is by parameters, and not reduced to a number."""


class ConstantTerm(NamedTuple):
    """A sum in a loss to which such a derivative was added."""

    derivative: PlainDerivative
    captured: Any
    """The stack of the call that added it."""


class PlainDerivatives:
    """Follows derivatives without a graph into losses."""

    def __init__(self) -> None:
        self.terms: list[ConstantTerm] = []
        """Those in the graph of a loss."""
        self._followed: MutableMapping[Tensor, PlainDerivative] = WeakTensorKeyDictionary()
        self._differentiated: MutableMapping[Tensor, frozenset[int]] = WeakTensorKeyDictionary()
        """Leaves that are no parameters, with the parameters on which their ``.grad`` depends."""

    def given(self, roots: Any, inputs: Any, result: Any, captured: Any) -> None:
        """``grad`` has given derivatives that have no graph."""
        by = [each for each in inputs or () if isinstance(each, Tensor)]
        is_step = any(isinstance(each, Parameter) for each in by)
        inputs = frozenset(map(id, by))
        about = PlainDerivative(captured, False, _parameters(roots), inputs, is_step)
        if about.leaves:
            for each in result or ():
                if isinstance(each, Tensor):
                    self._followed[each] = about

    def accumulated(self, nodes: Iterable[Any]) -> None:
        """A pass that writes ``.grad`` is about to run these nodes."""
        leaves = [each.variable for each in nodes if hasattr(each, "variable")]
        parameters = frozenset(id(each) for each in leaves if isinstance(each, Parameter))
        for leaf in leaves:
            if not isinstance(leaf, Parameter) and parameters:
                self._differentiated[leaf] = parameters

    def called(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, captured: Any
    ) -> None:
        """A call has returned."""
        if name == READS_GRADIENT:
            self._read(args[0], result, captured)
            return
        if not self._followed or not isinstance(result, Tensor) or not torch.is_grad_enabled():
            return
        given = [tensor for _, tensor in tensors_of(tuple(args), dict(kwargs))]
        found = [self._followed[each] for each in given if each in self._followed]
        last = name.rpartition(".")[2]
        if not found or last in _ENDING:
            return
        if not result.requires_grad:
            if result.is_floating_point():
                is_reduced = result.numel() == 1 < max(each.numel() for each in given)
                is_step = found[0].is_step and not is_reduced
                self._followed[result] = found[0]._replace(is_step=is_step)
        elif last.strip("_") in _ADDING and result.grad_fn is not None and not found[0].is_step:
            with_graph = [each for each in given if each.grad_fn is not None]
            if any(self._depends(each, found[0]) for each in with_graph):
                node: Any = result.grad_fn
                node.metadata[_KEY] = ConstantTerm(found[0], captured)

    def backward_begins(self, nodes: Iterable[Any]) -> None:
        """A call of backward or grad is about to run these nodes."""
        for node in nodes:
            found = getattr(node, "metadata", {}).get(_KEY)
            if isinstance(found, ConstantTerm):
                self.terms.append(found)
                del node.metadata[_KEY]

    def _read(self, tensor: Any, gradient: Any, captured: Any) -> None:
        leaves = self._differentiated.get(tensor) if isinstance(tensor, Tensor) else None
        if leaves and isinstance(gradient, Tensor) and not gradient.requires_grad:
            inputs = frozenset({id(tensor)})
            self._followed[gradient] = PlainDerivative(captured, True, leaves, inputs)

    def _depends(self, tensor: Tensor, derivative: PlainDerivative) -> bool:
        """Note [Meant as a constant]."""
        is_input = id(tensor) in derivative.inputs
        return not is_input and bool(_parameters([tensor]) & derivative.leaves)


def _parameters(roots: Any) -> frozenset[int]:
    """Identities of the parameters on which tensors depend."""
    nodes = nodes_to_run(roots, None)[:_MOST_NODES]
    leaves = (each.variable for each in nodes if hasattr(each, "variable"))
    return frozenset(id(each) for each in leaves if isinstance(each, Parameter))
