"""Leaves that get gradients though no optimizer holds them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from agviz.record.steps.attributes import attribute_of
from agviz.traces.step_facts import UnheldLeaf

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Sequence

    from torch import Tensor
    from torch.nn import Module

_MOST: Final = 2_000
"""Leaves that are followed; those of a model that nobody trains are no fault of its optimizer."""
_FROM_PASS: Final = 2
"""Passes from which on a leaf is written down: what is made anew for each pass never is."""
_FEW: Final = 32
"""Elements that show whether somebody moves a leaf."""


class Reached(NamedTuple):
    """A leaf to which a pass leads."""

    graph_task: int
    node: int
    variable: Tensor
    name: str
    """Empty: no module that is known has it as a parameter."""


class _Followed:
    __slots__ = ("attribute", "first", "is_moved", "leaf", "passes", "shape", "storage")

    def __init__(self, leaf: int, reached: Reached, first: tuple[Any, ...]) -> None:
        from torch.multiprocessing.reductions import StorageWeakRef

        self.leaf = leaf
        self.attribute = ""
        self.shape = str(list(reached.variable.shape))
        self.storage = StorageWeakRef(reached.variable.untyped_storage())
        self.first = first
        self.passes = 0
        self.is_moved = False


class UnheldLeaves:
    """Follows them from pass to pass, without a reference to them.

    Args:
        modules: gives the outermost modules, each with what names of its parameters begin with.
    """

    def __init__(self, modules: Callable[[], Sequence[tuple[str, Module]]]) -> None:
        self._modules = modules
        self._number = 0
        self._known: dict[tuple[int, int], _Followed] = {}
        """By identity and address."""

    @property
    def follows_any(self) -> bool:
        """Whether there are any."""
        return bool(self._known)

    def reached(self, leaf: Reached, held: Container[int]) -> Iterator[UnheldLeaf]:
        """A pass leads to a leaf; what is to be written of it.

        Args:
            leaf: the leaf.
            held: identities of what optimizers hold.
        """
        from torch.nn import Parameter

        variable = leaf.variable
        if not _is_followed(variable):
            return
        key = id(variable), variable.data_ptr()
        if key[0] in held:
            gone = self._known.pop(key, None)
            if gone is not None:
                where = 0, leaf.graph_task, leaf.node
                yield UnheldLeaf(gone.leaf, "", "", False, "", *where, is_moved=False)
            return
        found = self._known.get(key)
        state = _state(variable)
        if found is None or found.storage.expired():
            if len(self._known) >= _MOST:
                self._forget_dead()
                if len(self._known) >= _MOST:
                    return
            found = self._known[key] = _Followed(self._number, leaf, state)
            self._number += 1
        found.passes += 1
        found.is_moved |= state != found.first
        if found.passes >= _FROM_PASS and (
            found.passes < 8 or found.passes & (found.passes - 1) == 0
        ):
            if found.passes == _FROM_PASS and not leaf.name:
                found.attribute = attribute_of(variable, self._modules())
            is_parameter = isinstance(variable, Parameter)
            what = leaf.name, found.attribute, is_parameter, found.shape
            at = found.passes, leaf.graph_task, leaf.node
            yield UnheldLeaf(found.leaf, *what, *at, is_moved=found.is_moved)

    def _forget_dead(self) -> None:
        self._known = {
            key: found for key, found in self._known.items() if not found.storage.expired()
        }


def _is_followed(variable: Tensor) -> bool:
    import torch

    return (
        type(variable) in {torch.Tensor, torch.nn.Parameter}
        and variable.layout is torch.strided
        and not variable.is_meta
        and not variable.is_nested
    )


def _state(variable: Tensor) -> tuple[Any, ...]:
    """What is another once somebody has moved the leaf; of a device's only the version."""
    from agviz.measure.health import unseen

    if variable.device.type != "cpu" or not variable.is_contiguous():
        return (variable._version,)
    with unseen():
        return variable._version, *map(repr, variable.detach().view(-1)[:_FEW].tolist())
