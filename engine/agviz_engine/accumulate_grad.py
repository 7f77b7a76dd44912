"""Gradient stealing: handing a gradient to a leaf without a copy (``accumulate_grad.h``).

``AccumulateGrad::accumulateGrad`` makes an incoming gradient the leaf's ``.grad`` as it is, where
nobody else holds it. Called from Python it can't see that, because the Python object of the
gradient is a holder too, and copies. So the case that matters is done here: the first gradient of
a plain leaf. Every other case goes to torch.

Torch guards the leaf with a mutex that can't be reached from Python. :class:`Activity` shows
whether anything else in this process could accumulate at the same moment; then nothing is stolen.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor
from torch.nn import Parameter

from agviz_engine.dense import is_dense
from agviz_engine.releases import is_grad_layout_enforced
from agviz_engine.thread_state import current
from agviz_engine.torch_layout import are_alike

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_C = cast("Any", torch._C)
_sparse_tensor = torch.ops.aten._sparse_coo_tensor_unsafe.default
"""What torch calls, too: ``torch.sparse_coo_tensor`` warns in some releases in any case."""
_use_count = cast("Callable[[Tensor], int]", cast("Any", Tensor)._use_count)
_PLAIN = (Tensor, Parameter)
_REFERENCES = 3
"""Holders of a gradient that only the caller of :func:`steal` has: its tuple, its argument here,
and ``getrefcount``'s own."""


class Activity:
    """How many backward passes could accumulate into one leaf at the same time."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.passes = 0

    @contextlib.contextmanager
    def one_more(self) -> Iterator[None]:
        """For the length of a backward pass, one more is under way."""
        thread = current()
        with self.lock:
            self.passes += 1
        thread.passes += 1
        try:
            yield
        finally:
            thread.passes -= 1
            with self.lock:
                self.passes -= 1

    def forget(self) -> None:
        """Drop the passes of all other threads: they do not exist in a forked child."""
        self.lock = threading.RLock()
        self.passes = current().passes


def steal(
    variable: Tensor,
    inputs: tuple[Tensor | None, ...],
    activity: Activity,
    *,
    before_hooks: tuple[Tensor | None, ...] = (),
) -> bool:
    """Make ``inputs[0]`` the ``.grad`` of an AccumulateGrad's variable, if torch would steal it.

    Gradient mode must be off. ``inputs`` must be the only holder of its gradient, beside the tuple
    ``before_hooks`` from which hooks may have made it.

    Returns:
        Whether it was done; otherwise nothing was.
    """
    gradient = cast("Tensor", inputs[0])
    own = _REFERENCES + 1  # the local variable
    if before_hooks:
        own += _is_in_another(gradient, inputs, before_hooks)
    if not _is_free(variable, inputs, own):
        return False
    is_alike = are_alike(gradient, variable)
    if not is_alike and not _is_stealable(gradient, variable):
        return False
    with activity.lock:
        if activity.passes > 1 or variable.grad is not None:
            return False
        is_sparse = not is_alike and gradient.is_sparse
        variable.grad = _shallow_copy(gradient) if is_sparse else gradient.detach()
    return True


def is_plain(variable: Tensor) -> bool:
    """Whether a leaf is no subclass, and gets gradients."""
    return type(variable) in _PLAIN and variable.requires_grad


def is_free(variable: Tensor, inputs: tuple[Tensor | None, ...]) -> bool:
    """Whether torch would steal ``inputs[0]`` if no ``.grad`` is there yet, as for :func:`steal`.

    It is a plain one on the CPU, laid out as the plain leaf, and nobody but ``inputs`` holds it.
    """
    gradient = inputs[0]
    return (
        gradient is not None
        and _is_free(variable, inputs, _REFERENCES + 1)
        and are_alike(gradient, variable)
    )


def _is_free(variable: Tensor, inputs: tuple[Tensor | None, ...], own: int) -> bool:
    gradient = inputs[0]
    return (
        sys.getrefcount(gradient) <= own
        and type(gradient) is Tensor
        and is_plain(variable)
        and _use_count(gradient) == 1
    )


def _is_in_another(
    gradient: Tensor | None,
    inputs: tuple[Tensor | None, ...],
    before_hooks: tuple[Tensor | None, ...],
) -> bool:
    return before_hooks is not inputs and any(each is gradient for each in before_hooks)


def _is_stealable(gradient: Tensor, variable: Tensor) -> bool:
    if gradient.is_nested or _C._functorch.is_functorch_wrapped_tensor(gradient):
        return False
    if gradient.shape != variable.shape:
        return False
    if gradient.is_sparse:
        return gradient._indices().is_contiguous() and gradient._values().is_contiguous()
    return _has_stealable_layout(gradient, variable)


def _shallow_copy(gradient: Tensor) -> Tensor:
    """A sparse tensor of its own around the same indices and values."""
    return cast("Tensor", _sparse_tensor(gradient._indices(), gradient._values(), gradient.shape))


def _has_stealable_layout(gradient: Tensor, variable: Tensor) -> bool:
    if gradient.layout is not torch.strided or variable.layout is not torch.strided:
        return False
    return gradient.dtype == variable.dtype and (
        _obeys_layout_contract(gradient, variable) or not is_grad_layout_enforced()
    )


def _obeys_layout_contract(gradient: Tensor, variable: Tensor) -> bool:
    """``utils::obeys_layout_contract`` for strided tensors of one shape."""
    if variable.is_contiguous() or not is_dense(variable):
        return gradient.is_contiguous()
    return all(
        ours == wanted or size == 1
        for ours, wanted, size in zip(
            gradient.stride(), variable.stride(), variable.shape, strict=True
        )
    )


def beside_post_hooks(
    inputs: tuple[Tensor | None, ...], before_hooks: tuple[Tensor | None, ...]
) -> tuple[Tensor | None, ...]:
    """The inputs for an AccumulateGrad that has post-hooks, to be called from Python.

    Torch counts one holder more as its own then, so that it would steal a gradient that the program
    still has: it gets a copy of that to steal. Gradient mode must be off.
    """
    gradient = inputs[0]
    own = _REFERENCES + _is_in_another(gradient, inputs, before_hooks)
    if gradient is None or sys.getrefcount(gradient) <= own:
        return inputs
    with _C.DisableTorchFunction():
        return (gradient.clone(),)
