"""Letting go of tensors that are to be swapped.

``torch.utils.swap_tensors``, by which ``Module.to`` converts parameters that are tensor subclasses,
refuses tensors to which there are weak references.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


def when_swapped(let_go: Callable[[Tensor], Callable[[], object]]) -> Callable[[], None]:
    """Have a function called with each tensor before it is swapped, and what it returns after.

    Returns:
        A function that takes this back.
    """
    import torch

    utils = cast("Any", torch.utils)
    own = utils.swap_tensors

    def swap_tensors(t1: Tensor, t2: Tensor) -> None:
        come_back = let_go(t1), let_go(t2)
        try:
            own(t1, t2)
        finally:
            for each in come_back:
                each()

    def undo() -> None:
        if utils.swap_tensors is swap_tensors:
            utils.swap_tensors = own

    utils.swap_tensors = swap_tensors
    return undo
