"""The checks on gradients at the edges of nodes (``validate_outputs`` in ``engine.cpp``).

A gradient that is larger than the tensor it belongs to by broadcasting is summed down here, one
of another floating dtype is cast, and anything else that does not fit is an error with torch's
words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from torch import Tensor

if TYPE_CHECKING:
    from agviz_engine.node import NodeRef

FormatError = Callable[[str], str]


def validate_outputs(
    edges: Sequence[tuple[NodeRef, int] | None],
    gradients: Sequence[Tensor | None],
    format_error: FormatError,
) -> list[Tensor | None]:
    """Check ``gradients`` against the inputs that ``edges`` lead to, reducing and casting.

    Args:
        edges: consumer and its input number for each gradient, or None where nobody wants it.
        gradients: one for each edge; None is undefined and always fits.
        format_error: puts the words about the producing node around a message.

    Raises:
        RuntimeError: a gradient does not fit, with torch's message.
    """
    if len(gradients) != len(edges):
        raise RuntimeError(
            format_error(
                f"invalid number of gradients - expected {len(edges)}, but got {len(gradients)}"
            )
        )
    checked = list(gradients)
    for i, (edge, gradient) in enumerate(zip(edges, gradients, strict=True)):
        if edge is None or gradient is None:
            continue
        consumer, slot = edge
        metadata = cast("Any", consumer.node)._input_metadata[slot]
        if not _fits(metadata, gradient):
            checked[i] = _conform(i, metadata, gradient, format_error)
    return checked


def _fits(metadata: Any, gradient: Tensor) -> bool:
    try:
        return bool(
            metadata.shape == list(gradient.shape)
            and metadata.dtype == gradient.dtype
            and metadata.device == gradient.device
        )
    except RuntimeError:  # undefined metadata, or a nested tensor, whose shape is not readable
        return True


def _conform(index: int, metadata: Any, gradient: Tensor, format_error: FormatError) -> Tensor:
    if metadata.shape != list(gradient.shape):
        gradient = _reduce(index, metadata, gradient, format_error)
    if gradient.dtype != metadata.dtype:
        if not gradient.is_floating_point() and metadata.dtype.is_complex != gradient.is_complex():
            raise RuntimeError(
                "Expected isFloatingType(grad.scalar_type()) || "
                "(input_is_complex == grad_is_complex) to be true, but got false.  "
                "(Could this error message be improved?  If so, please report an enhancement "
                "request to PyTorch.)"
            )
        gradient = gradient.to(metadata.dtype)
    if gradient.device != metadata.device and type(gradient) is Tensor:
        if gradient.dim() != 0:
            raise RuntimeError(
                format_error(
                    f"invalid gradient at index {index} - expected device {metadata.device} "
                    f"but got {gradient.device}"
                )
            )
        gradient = gradient.to(metadata.device)
    return gradient


def _reduce(index: int, metadata: Any, gradient: Tensor, format_error: FormatError) -> Tensor:
    wanted = metadata.shape
    if not _expandable(wanted, list(gradient.shape)):
        raise RuntimeError(
            format_error(
                f"invalid gradient at index {index} - got {list(gradient.shape)} "
                f"but expected shape compatible with {list(wanted)}"
            )
        )
    return gradient.sum_to_size(wanted)


def _expandable(shape: Sequence[int], desired: Sequence[int]) -> bool:
    """``is_expandable_to`` (``ATen/ExpandUtils.h``)."""
    if len(shape) > len(desired):
        return False
    tail = zip(reversed(shape), reversed(desired), strict=False)
    return all(size in (target, 1) for size, target in tail)
