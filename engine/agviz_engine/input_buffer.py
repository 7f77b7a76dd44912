"""InputBuffer: where the gradients of a node's inputs gather (torch's ``input_buffer.cpp``)."""

from __future__ import annotations

from torch import Tensor, is_grad_enabled


class InputBuffer:
    """One slot per input of the node; the implicit addition of gradients that meet there.

    ``buffer[i]`` is None while input ``i`` is undefined.
    """

    __slots__ = ("buffer",)

    def __init__(self, size: int) -> None:
        self.buffer: list[Tensor | None] = [None] * size

    def take(self) -> tuple[Tensor | None, ...]:
        """The gradients, which the buffer then no longer holds (``InputBuffer::variables``)."""
        gradients = tuple(self.buffer)
        self.buffer.clear()
        return gradients

    def add(self, position: int, gradient: Tensor) -> bool:
        """Add ``gradient`` to the slot ``position`` (``InputBuffer::add`` and ``accumulate``).

        Torch adds in place where it holds the last reference to the older tensor; here both
        always give a new tensor, with the same values and the same operand order.

        Returns:
            True where a gradient was there before, so that an addition took place.
        """
        buffer = self.buffer
        old = buffer[position]
        if old is None:
            buffer[position] = gradient
            return False
        if not is_grad_enabled() and (old.is_sparse or old.is_sparse_csr):
            buffer[position] = gradient + old
        else:
            buffer[position] = old + gradient
        return True
