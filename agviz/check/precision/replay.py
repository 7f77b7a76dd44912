"""A pass computed again: in the precision of the run, in float64, or moved by a rounding error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import torch
from torch import Tensor

from agviz.check.kept_call import mapped
from agviz.check.precision.tape import Slot, TapeError
from agviz.record.arguments import tensors_given

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agviz.check.precision.tape import ForwardTape, TapeCall

_DOUBLE: Final[Mapping[torch.dtype, torch.dtype]] = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
_GETTER: Final = ".__get__"
"""What torch's name of a property's reader ends with, as that of ``Tensor.grad``."""
_CASTS: Final = frozenset({"Tensor.half", "Tensor.bfloat16", "Tensor.float"})


class Replay:
    """The calls of a tape, made again.

    Args:
        tape: the calls.
        in_double: whether all of lower precision becomes float64.
        moved: by what share of themselves given numbers are moved, at random; 0: not at all.
        seed: of these moves.
    """

    def __init__(
        self, tape: ForwardTape, *, in_double: bool, moved: float = 0.0, seed: int = 0
    ) -> None:
        self._tape = tape
        self._in_double = in_double
        self._moved = moved
        self._random = torch.Generator().manual_seed(seed)
        self.tensors: dict[int, Tensor] = {}
        self.gradients: dict[int, Tensor] = {}
        """Of the first result of a call, by place of the call."""

    def call(self, place: int, call: TapeCall, like: Mapping[int, Tensor]) -> list[Tensor]:
        """Make one call; what is no floating-point number is as in ``like``: the same branch.

        Raises:
            TapeError: it does not give what it gave.
        """
        kinds = Slot, torch.dtype
        args = [mapped(each, self._real, kinds) for each in call.args]
        kwargs = {key: mapped(each, self._real, kinds) for key, each in call.kwargs.items()}
        with torch.set_grad_enabled(call.grad_enabled):
            result = self._made(call, args, kwargs)
        results = [tensor for _, tensor in tensors_given(result)]
        if len(results) != len(call.results):
            read = call.name.removesuffix(_GETTER)
            does = "calls" if read == call.name else "reads"
            raise TapeError(f"its forward {does} {read}, which gives something else anew")
        for number, tensor in zip(call.results, results, strict=True):
            is_exact = not (tensor.is_floating_point() or tensor.is_complex())
            self.tensors[number] = like.get(number, tensor) if is_exact else tensor
        first = results[0] if results else None
        if first is not None and first.requires_grad and first.grad_fn is not None:
            first.register_hook(lambda gradient: self._arrived(place, gradient))
        return results

    def backward(self) -> dict[int, Tensor]:
        """The gradients of leaves, by number."""
        roots = [self.tensors[number] for number, _ in self._tape.roots]
        weights = [
            None if weight is None else self._converted(weight) for _, weight in self._tape.roots
        ]
        torch.autograd.backward(roots, cast("Any", weights))
        found = {}
        for number, leaf in self._tape.given.items():
            gradient = self.tensors[number].grad if number in self.tensors else None
            if leaf.requires_grad and gradient is not None:
                found[number] = gradient
        return found

    def _made(self, call: TapeCall, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if call.factors is not None:
            return args[0] * call.factors.to(args[0].dtype)
        if self._in_double and call.name in _CASTS:
            return args[0].to(torch.float64, copy=True)
        return call.function(*args, **kwargs)

    def _arrived(self, place: int, gradient: Tensor) -> None:
        self.gradients.setdefault(place, gradient.detach())

    def _real(self, value: Slot | torch.dtype) -> Any:
        if isinstance(value, Slot):
            return self._tensor(value.number)
        return _DOUBLE.get(value, value) if self._in_double else value

    def _tensor(self, number: int) -> Tensor:
        if number not in self.tensors:
            leaf = self._tape.given[number]
            tensor = self._converted(leaf.copy)
            if self._moved and tensor.is_floating_point():
                by = torch.rand(tensor.shape, generator=self._random, dtype=torch.float64)
                tensor = tensor * (1 + self._moved * (2 * by - 1)).to(tensor.dtype)
            self.tensors[number] = tensor.requires_grad_(leaf.requires_grad)
        return self.tensors[number]

    def _converted(self, tensor: Tensor) -> Tensor:
        wanted = _DOUBLE.get(tensor.dtype, tensor.dtype) if self._in_double else tensor.dtype
        return tensor.detach().clone().to(wanted)
