"""InputBuffer: where the gradients of a node's inputs gather (torch's ``input_buffer.cpp``)."""

from __future__ import annotations

from typing import cast

from torch import Tensor, is_grad_enabled


class InputBuffer(list[Tensor | None]):
    """One slot per input of the node; the implicit addition of gradients that meet there.

    Slot ``i`` is None while input ``i`` is undefined. It is a list and no more than that where
    nothing has to be added, because one is made for every node.
    """

    __slots__ = ()

    def accumulate(self, position: int, gradient: Tensor) -> None:
        """Add ``gradient`` to that in the slot ``position`` (``InputBuffer::accumulate``).

        Torch adds in place where it holds the last reference to the older tensor; here both
        always give a new tensor, with the same values and the same operand order.
        """
        old = cast("Tensor", self[position])
        if not is_grad_enabled() and (old.is_sparse or old.is_sparse_csr):
            self[position] = gradient + old
        else:
            self[position] = old + gradient
