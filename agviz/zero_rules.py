"""Nodes that put out zeros whatever finite gradient comes in, as what they saved shows.

What was saved is looked at as it is: hooks that pack saved tensors are not called, and a tensor
that was released, or that a hook packed, shows nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, cast

import torch

from agviz.analysis.causes import Cause
from agviz.measure.health import measure
from agviz.measure.saved_tensors import raw_saved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from torch import Tensor

    from agviz.measure.values import Health

    Zeros = Iterable[tuple[int, Cause]]


def zeros(node: Any) -> dict[int, Cause]:
    """The outputs of a torch node that are sure to be zero, and why.

    Call it within :func:`agviz.measure.health.unseen`.
    """
    name = node.name().rpartition("::")[2].rstrip("0123456789")
    check = _CHECKS.get(name)
    if check is None:
        return {}
    try:
        return dict(check(_Saved(node)))
    except (AttributeError, RuntimeError):
        return {}  # released, or saved under another name


class _Saved:
    """What a node saved, by name, without unpacking it."""

    def __init__(self, node: Any) -> None:
        self._node = node

    def tensor(self, name: str) -> Tensor | None:
        """A saved tensor; None where there is none to look at."""
        data = raw_saved(self._node, f"_raw_saved_{name}").data
        return data if isinstance(data, torch.Tensor) else None

    def health(self, name: str) -> Health | None:
        """The same in numbers."""
        data = self.tensor(name)
        health = None if data is None else measure(data)
        return health if health and health.numbers and not health.unknown else None

    def value(self, name: str) -> Any:
        """What was saved that is no tensor."""
        return getattr(self._node, f"_saved_{name}")

    @property
    def is_of_one_element(self) -> bool:
        """Whether what the node's function gave back had a single element."""
        shape: tuple[int, ...] = self._node._input_metadata[0].shape
        return math.prod(shape) == 1

    def is_zero(self, name: str) -> bool:
        """Whether a tensor is known to hold only zeros."""
        health = self.health(name)
        return health is not None and health.zero == health.numbers

    def is_within(self, name: str, least: float | None, most: float | None) -> bool:
        """Whether all elements of a tensor lie there, ends included, and none is NaN."""
        health = self.health(name)
        if health is None or health.min is None or health.max is None or health.nan:
            return False
        above = least is None or (health.min >= least and not health.neginf)
        return above and (most is None or (health.max <= most and not health.posinf))


def _always(cause: Cause) -> Callable[[_Saved], Zeros]:
    return lambda _: [(0, cause)]


def _product(cause: Cause, *factors: tuple[int, str]) -> Callable[[_Saved], Zeros]:
    """The gradient of an output is multiplied by the named tensor."""

    def check(saved: _Saved) -> Zeros:
        return [(output, cause) for output, name in factors if saved.is_zero(name)]

    return check


def _mul(saved: _Saved) -> Zeros:
    for output, name in ((0, "other"), (1, "self")):
        factor = saved.tensor(name)
        if factor is not None and saved.is_zero(name):
            single = Cause.ZERO_WEIGHT if saved.is_of_one_element else Cause.ZERO_FACTOR
            yield output, single if factor.numel() == 1 else Cause.MASKED


def _relu(saved: _Saved) -> Zeros:
    if saved.is_within("result", None, 0.0):
        yield 0, Cause.DEAD_ACTIVATION


def _threshold(saved: _Saved) -> Zeros:
    if saved.is_within("self", None, saved.value("threshold")):
        yield 0, Cause.DEAD_ACTIVATION


def _clamp(least: str, most: str, *, ends_pass: bool) -> Callable[[_Saved], Zeros]:
    """Flat below one number and above another; ``ends_pass``: not at them."""

    def check(saved: _Saved) -> Zeros:
        data = saved.tensor("self")
        low, high = saved.value(least), saved.value(most)
        if data is None or data.layout is not torch.strided or data.is_complex():
            return
        passes = torch.ones_like(data, dtype=torch.bool)
        if low is not None:
            passes &= (data >= low) if ends_pass else (data > low)
        if high is not None:
            passes &= (data <= high) if ends_pass else (data < high)
        if not passes.any():
            yield 0, Cause.DEAD_ACTIVATION

    return check


def _saturated(derivative: Callable[[Tensor], Tensor]) -> Callable[[_Saved], Zeros]:
    """``derivative`` of the result is zero throughout."""

    def check(saved: _Saved) -> Zeros:
        result = saved.tensor("result")
        if result is not None and not derivative(result).any():
            yield 0, Cause.DEAD_ACTIVATION

    return check


def _where(saved: _Saved) -> Zeros:
    condition = saved.health("condition")
    if condition is not None and condition.zero == condition.numbers:
        yield 0, Cause.MASKED
    elif condition is not None and not condition.zero:
        yield 1, Cause.MASKED


def _masked_fill(saved: _Saved) -> Zeros:
    mask = saved.health("mask")
    if mask is not None and not mask.zero:
        yield 0, Cause.MASKED


def _softmax(saved: _Saved) -> Zeros:
    result = saved.tensor("result")
    dim = saved.value("dim")
    if result is not None and result.dim():
        dim -= 2**64 if dim >= 2**63 else 0
        if result.shape[dim] == 1:
            yield 0, Cause.FLAT


def _embedding(saved: _Saved) -> Zeros:
    indices, padding = saved.tensor("indices"), saved.value("padding_idx")
    if indices is not None and bool((indices == padding).all()):
        yield 0, Cause.MASKED


def _grid_sampler(saved: _Saved) -> Zeros:
    if saved.value("interpolation_mode") == _NEAREST:
        yield 1, Cause.FLAT


_NEAREST: Final = 1
"""The mode of ``grid_sample`` that takes the nearest pixel."""
_FACTOR: Final = Cause.ZERO_FACTOR
_CHECKS: Final = cast(
    "dict[str, Callable[[_Saved], Zeros]]",
    {
        "ReluBackward": _relu,
        "ThresholdBackward": _threshold,
        "ClampBackward": _clamp("min", "max", ends_pass=True),
        "HardtanhBackward": _clamp("min_val", "max_val", ends_pass=False),
        "SigmoidBackward": _saturated(lambda result: result * (1 - result)),
        "TanhBackward": _saturated(lambda result: 1 - result * result),
        "SoftmaxBackward": _softmax,
        "LogSoftmaxBackward": _softmax,
        "MulBackward": _mul,
        "MmBackward": _product(_FACTOR, (0, "mat2"), (1, "self")),
        "BmmBackward": _product(_FACTOR, (0, "mat2"), (1, "self")),
        "AddmmBackward": _product(_FACTOR, (1, "mat2"), (2, "mat1")),
        "BaddbmmBackward": _product(_FACTOR, (1, "batch2"), (2, "batch1")),
        "MvBackward": _product(_FACTOR, (0, "vec"), (1, "self")),
        "DotBackward": _product(_FACTOR, (0, "tensor"), (1, "self")),
        "ConvolutionBackward": _product(_FACTOR, (0, "weight"), (1, "input")),
        "WhereBackward": _where,
        "MaskedFillBackward": _masked_fill,
        "EmbeddingBackward": _embedding,
        "GridSampler2DBackward": _grid_sampler,
        "GridSampler3DBackward": _grid_sampler,
        "ZeroBackward": _always(Cause.OVERWRITTEN),
        "FillBackward": _always(Cause.OVERWRITTEN),
        "CopyBackwards": _always(Cause.OVERWRITTEN),
        **{
            f"{name}Backward": _always(Cause.FLAT)
            for name in ("Round", "Floor", "Ceil", "Trunc", "Sign")
        },
    },
)
"""What to ask of a node, by its name without the number."""
