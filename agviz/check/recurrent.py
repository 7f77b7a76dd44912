"""Recurrent layers and attention over the samples of a batch, or samples that are taken for steps.

A layer without ``batch_first`` reads (32, 12, 3) as 32 steps of 12 samples. Where the batch came
first, ``out[:, -1]`` is meant to take the last step, and takes the last sample. It is told where
that is all that is used of the output: nobody computes samples to drop them.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from torch import Tensor, nn

from agviz.record.arguments import tensors_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_LAYERS: Final = frozenset({"gru", "lstm", "rnn_relu", "rnn_tanh"})
_ATTENDING: Final = (nn.MultiheadAttention, nn.TransformerEncoder, nn.TransformerDecoder)
_MOST: Final = 1_000
"""Outputs that are followed."""


class LayerOutput(NamedTuple):
    """The output of a layer, and what uses it."""

    tensor: weakref.ref[Tensor]
    captured: Any
    """The stack of the layer's call."""
    layer: str
    shape: tuple[int, ...]
    axis: int
    """The one of the samples."""
    uses: list[Any]
    """Stacks of calls that take one sample; None of others."""


class RecurrentOutputs:
    """Follows them to what uses them."""

    def __init__(self) -> None:
        self._outputs: dict[int, LayerOutput] = {}

    def called(
        self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, captured: Any
    ) -> None:
        """A torch function has given ``result``."""
        last = name.rpartition(".")[2]
        for _, tensor in tensors_of(tuple(args), dict(kwargs)) if self._outputs else ():
            known = self._outputs.get(id(tensor))
            if known is not None and known.tensor() is tensor:
                is_sample = args[0] is tensor and _is_sample(last, args, known.axis)
                known.uses.append(captured if is_sample else None)
        if last in _LAYERS:
            self._made(last, args[-1] is True, result, captured)

    def left(self, module: nn.Module, result: Any, capture: Callable[[], Any]) -> None:
        """A module has given ``result``."""
        if issubclass(type(module), _ATTENDING):
            inner = next((each for each in module.modules() if hasattr(each, "batch_first")), None)
            first = getattr(inner, "batch_first", False) is True
            self._made(type(module).__name__, first, result, capture())

    def _made(self, layer: str, is_batch_first: bool, result: Any, captured: Any) -> None:
        if len(self._outputs) >= _MOST:
            return
        output = result[0] if type(result) is tuple else result
        if issubclass(type(output), Tensor) and output.requires_grad and output.dim() == 3:
            shape, axis = tuple(output.shape), 0 if is_batch_first else 1
            if min(shape[:2]) > 1:
                self._outputs[id(output)] = LayerOutput(
                    weakref.ref(output), captured, layer, shape, axis, []
                )

    def found(self) -> list[LayerOutput]:
        """Those of which one sample was used, and nothing else."""
        outputs = self._outputs.values()
        return [each for each in outputs if len(each.uses) == 1 and each.uses[0] is not None]


def _is_sample(name: str, args: Sequence[Any], axis: int) -> bool:
    """Whether a call takes one entry along an axis, and all along the other of the first two."""
    if name == "select" and len(args) == 3:
        return bool(args[1] == axis)
    if name != "__getitem__" or len(args) < 2:
        return False
    index = args[1] if type(args[1]) is tuple else (args[1],)
    places = [*index, *[slice(None)] * 2][:2]
    other = places[1 - axis]
    return type(places[axis]) is int and type(other) is slice and other == slice(None)
