"""The checks on gradients at the edges of nodes (``validate_outputs`` in ``engine.cpp``).

A gradient that is larger than the tensor it belongs to by broadcasting is summed down here, one
of another floating dtype is cast, and anything else that does not fit is an error with torch's
words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from agviz_engine.torch_layout import Kind, expectation, first_to_judge, reduced_shape

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agviz_engine.node import NodeRef

    FormatError = Callable[[str], str]


def validate_outputs(
    edges: Sequence[tuple[NodeRef, int] | None],
    gradients: tuple[Tensor | None, ...],
    format_error: FormatError,
) -> tuple[Tensor | None, ...]:
    """Check ``gradients`` against the inputs that ``edges`` lead to, reducing and casting.

    Args:
        edges: consumer and its input number for each gradient, or None where nobody wants it.
        gradients: one for each edge; None is undefined and always fits.
        format_error: puts the words about the producing node around a message.

    Returns:
        The gradients, those that did not fit reduced or cast.

    Raises:
        RuntimeError: a gradient does not fit, with torch's message.
    """
    begin = first_to_judge(edges, gradients)
    if begin < 0:
        return gradients
    if len(gradients) != len(edges):
        raise RuntimeError(
            format_error(
                f"invalid number of gradients - expected {len(edges)}, but got {len(gradients)}"
            )
        )
    for i in range(begin, len(edges)):
        edge, gradient = edges[i], gradients[i]
        if edge is None or gradient is None:
            continue
        consumer, slot = edge
        if first_to_judge((edge,), (gradient,)) == 0:
            fitted = _fitted(i, consumer, slot, gradient, format_error)
            gradients = (*gradients[:i], fitted, *gradients[i + 1 :])
    return gradients


def _fitted(
    index: int, consumer: NodeRef, slot: int, gradient: Tensor, format_error: FormatError
) -> Tensor:
    reduced = reduced_shape(consumer, slot, gradient)
    if reduced is not None:
        return _reduce(index, reduced, gradient, format_error)
    kind, shape = expectation(consumer, slot)
    if (
        type(gradient) is not Tensor
        or kind.is_nested
        or gradient.is_nested
        or shape != gradient.shape
        or kind.dtype is not gradient.dtype
        or kind.device != gradient.device
        or kind.layout is not gradient.layout
    ):
        return _conform(index, consumer, slot, kind, gradient, format_error)
    return gradient


def _conform(
    index: int,
    consumer: NodeRef,
    slot: int,
    kind: Kind,
    gradient: Tensor,
    format_error: FormatError,
) -> Tensor:
    made_in_cpp = (kind.is_nested and not kind.is_tensor_subclass) or (
        gradient.is_nested and type(gradient) is Tensor
    )
    if not made_in_cpp:  # the sizes of a nested tensor made in C++ can't be read
        shape = consumer.node._input_metadata[slot].shape
        if list(gradient.shape) != shape:
            gradient = _reduce(index, shape, gradient, format_error)
    if not gradient.is_floating_point() and (
        kind.input_dtype.is_complex != gradient.dtype.is_complex
    ):
        raise RuntimeError(
            "Expected isFloatingType(grad.scalar_type()) || "
            "(input_is_complex == grad_is_complex) to be true, but got false.  "
            "(Could this error message be improved?  If so, please report an enhancement "
            "request to PyTorch.)"
        )
    if kind.dtype is not None and gradient.dtype != kind.dtype:
        gradient = gradient.to(kind.dtype)
    _check_layout(index, kind, gradient, format_error)
    if gradient.device != kind.device and not kind.is_tensor_subclass and _is_plain(gradient):
        if gradient.dim() != 0:
            raise RuntimeError(
                format_error(
                    f"invalid gradient at index {index} - expected device {kind.device} "
                    f"but got {gradient.device}"
                )
            )
        gradient = gradient.to(kind.device)
    return gradient


def _is_plain(gradient: Tensor) -> bool:
    return not cast("Any", torch._C)._dispatch_keys(gradient).has(torch._C.DispatchKey.Python)


def _check_layout(index: int, kind: Kind, gradient: Tensor, format_error: FormatError) -> None:
    """A sparse gradient fits any layout, and a strided one fits sparse inputs.

    A tensor subclass shows Python its own layout, not that of the C++ tensor torch looks at.
    """
    if gradient.layout is kind.layout or gradient.is_sparse or type(gradient) is not Tensor:
        return
    if gradient.layout is torch.strided and kind.layout in _SPARSE:
        return
    raise RuntimeError(
        format_error(
            f"invalid gradient at index {index} - expected layout {_layout_name(kind.layout)} "
            f"but got {_layout_name(gradient.layout)}"
        )
    )


_SPARSE = (
    torch.sparse_coo,
    torch.sparse_csr,
    torch.sparse_csc,
    torch.sparse_bsr,
    torch.sparse_bsc,
)


def _layout_name(layout: torch.layout) -> str:
    """As ``operator<<`` of ``c10/core/Layout.h`` writes it."""
    words = str(layout).removeprefix("torch.").removeprefix("_").removesuffix("_coo").split("_")
    return "".join(word.capitalize() for word in words)


def _reduce(
    index: int, wanted: Sequence[int], gradient: Tensor, format_error: FormatError
) -> Tensor:
    if not _expandable(wanted, gradient.shape):
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
