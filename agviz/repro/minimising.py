"""The fewest elements of a node's tensors with which it still makes something non-finite.

What fails is known: a gradient that comes in is finite, and something that is put out is not. So
outputs that are finite go first, with the calls that only they need. Then of each size that
dimensions have, indices are left out by delta debugging (Zeller and Hildebrandt, 2002), in all
tensors at once, and in the lists of sizes among the arguments. Whatever does not run any more, or
does not fail, is not taken.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from agviz.errors import AgvizError
from agviz.repro.isolated_node import IsolatedNode, made_by, names_in
from agviz.repro.replaying import described_plainly, rebuilt, replay

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from agviz.repro.isolated_node import AtenCall, GivenTensor
    from agviz.repro.safetensors import StoredTensor

SECONDS: Final = 60.0
"""Time after which what was found is taken."""
_ROUNDS: Final = 4


def minimise(
    node: IsolatedNode, tensors: dict[str, StoredTensor], seconds: float = SECONDS
) -> tuple[IsolatedNode, dict[str, StoredTensor]]:
    """A smaller node that still fails, and its elements. Imports torch.

    Raises:
        agviz.errors.AgvizError: it does not fail here.
    """
    given = {each.name: rebuilt(each, tensors[each.name]) for each in node.given}
    found = _Smaller(node, given, time.monotonic() + seconds)
    if not found.fails(node.calls, given, node.outputs):
        raise AgvizError(
            f"{node.name} puts out nothing that is not finite of finite gradients, so there is"
            " nothing to keep while it is made smaller; leave --minimise out"
        )
    found.leave_out_outputs()
    for _ in range(_ROUNDS):
        before = found.numel
        for size in sorted(found.sizes, reverse=True):
            found.leave_out_indices(size)
        if found.numel == before:
            break
    return found.result(tensors)


class _Smaller:
    """The smallest so far that fails."""

    def __init__(self, node: IsolatedNode, given: dict[str, Tensor], until: float) -> None:
        self._node, self._until = node, until
        self._calls: tuple[AtenCall, ...] = node.calls
        self._outputs: tuple[str | None, ...] = node.outputs
        self._given = given

    @property
    def numel(self) -> int:
        """Elements of all tensors that are given."""
        return sum(tensor.numel() for tensor in self._given.values())

    @property
    def sizes(self) -> set[int]:
        """Sizes of dimensions, from 2 on."""
        return {n for tensor in self._given.values() for n in tensor.shape if n > 1}

    def fails(
        self,
        calls: Sequence[AtenCall],
        given: dict[str, Tensor],
        outputs: Sequence[str | None],
    ) -> bool:
        """Whether finite gradients become something that is not finite."""
        grads = [given[name] for name in self._node.grads if name in given]
        if any(map(_is_broken, grads)):
            return False
        try:
            found = replay(calls, {k: v.clone() for k, v in given.items()}, outputs)
        except Exception:  # noqa: BLE001 - torch has many ways to say that sizes do not fit
            return False
        return any(each is not None and _is_broken(each) for each in found)

    def leave_out_outputs(self) -> None:
        """Keep one output that is not finite, and what leads to it."""
        for number, name in enumerate(self._node.outputs):
            outputs = tuple(
                name if place == number else None for place in range(len(self._node.outputs))
            )
            if name is not None and self.fails(self._calls, self._given, outputs):
                calls, needed = _needed(self._calls, name)
                given = {key: value for key, value in self._given.items() if key in needed}
                if self.fails(calls, given, outputs):
                    self._calls, self._given, self._outputs = calls, given, outputs
                return

    def leave_out_indices(self, size: int) -> None:
        """Keep few of the indices of all dimensions of a size."""

        def fails(kept: list[int]) -> bool:
            if time.monotonic() > self._until:
                return False
            return self.fails(*self._narrowed(size, kept), self._outputs)

        kept = _fewest(list(range(size)), fails)
        if len(kept) < size:
            self._calls, self._given = self._narrowed(size, kept)

    def _narrowed(
        self, size: int, kept: list[int]
    ) -> tuple[tuple[AtenCall, ...], dict[str, Tensor]]:
        import torch

        given = {}
        for name, tensor in self._given.items():
            index = torch.tensor(kept, device=tensor.device)
            for dimension, n in enumerate(tensor.shape):
                if n == size:
                    tensor = tensor.index_select(dimension, index)  # noqa: PLW2901 - the next
            given[name] = tensor
        calls = tuple(
            replace(
                call,
                args=tuple(_resized(each, size, len(kept)) for each in call.args),
                kwargs={k: _resized(each, size, len(kept)) for k, each in call.kwargs.items()},
            )
            for call in self._calls
        )
        return calls, given

    def result(
        self, tensors: dict[str, StoredTensor]
    ) -> tuple[IsolatedNode, dict[str, StoredTensor]]:
        """The node with what it puts out now, and its elements."""
        if self._given.keys() == {each.name for each in self._node.given} and all(
            self._given[each.name].shape == each.size for each in self._node.given
        ):
            return self._node, tensors
        found: dict[str, StoredTensor] = {}
        given: list[GivenTensor] = []
        recorded: list[GivenTensor | None] = []
        for name, tensor in self._given.items():
            facts, found[name] = described_plainly(name, tensor)
            given.append(facts)
        plain = {each.name: rebuilt(each, found[each.name]) for each in given}
        for number, tensor_out in enumerate(replay(self._calls, plain, self._outputs)):
            if tensor_out is None:
                recorded.append(None)
                continue
            facts, found[f"output_{number}"] = described_plainly(f"output_{number}", tensor_out)
            recorded.append(facts)
        node = replace(
            self._node,
            given=tuple(given),
            calls=self._calls,
            outputs=self._outputs,
            recorded=tuple(recorded),
            grads=tuple(name if name in self._given else None for name in self._node.grads),
        )
        return node, found


def _is_broken(tensor: Tensor) -> bool:
    import torch

    if not (tensor.is_floating_point() or tensor.is_complex()):
        return False
    wide = tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)
    return not bool(torch.isfinite(wide).all())


def _fewest(indices: list[int], fails: Callable[[list[int]], bool]) -> list[int]:
    """Delta debugging: some of the indices with which it fails; all where none can go."""
    parts = 2
    while len(indices) > 1:
        step = -(-len(indices) // parts)
        pieces = [indices[i : i + step] for i in range(0, len(indices), step)]
        rests = [[i for i in indices if i not in {*piece}] for piece in pieces]
        for smaller in [*pieces, *(rests if len(pieces) > 2 else ())]:
            if fails(smaller):
                indices = smaller
                parts = 2
                break
        else:
            if parts >= len(indices):
                break
            parts = min(len(indices), 2 * parts)
    return indices


def _needed(calls: Sequence[AtenCall], output: str) -> tuple[tuple[AtenCall, ...], set[str]]:
    """The calls that lead to an output, and the names of all tensors in them."""
    needed, kept = {output}, []
    for call in reversed(calls):
        given = set(names_in([*call.args, *call.kwargs.values()]))
        writes = call.operator.split(".")[1].endswith("_") or "out" in call.kwargs
        if needed.intersection(made_by(call)) or (writes and needed & given):
            kept.append(call)
            needed |= given
    return tuple(reversed(kept)), needed


def _resized(value: Any, size: int, by: int, *, is_listed: bool = False) -> Any:
    """An argument in which the lists of sizes fit."""
    if isinstance(value, list | tuple):
        return [_resized(each, size, by, is_listed=True) for each in value]
    return by if is_listed and type(value) is int and value == size else value
