"""Simulated devices: which part of a model's backward pass runs on which device thread."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Self

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from torch import nn
    from torch.autograd.graph import Node


class Placement:
    """A device policy for the engine: nodes go where the module is whose forward made them.

    A context manager: only forward passes made while it is entered are known. Nodes made by one
    module's forward have successive sequence numbers, which hooks around the forward take down.

    Args:
        model: the whole model; the beginning of its forward is the beginning of a new graph.
        devices: device of each placed module; none of them may contain another.
        elsewhere: device of all other nodes, -1 for the queue of the thread that calls backward.
    """

    def __init__(
        self, model: nn.Module, devices: Mapping[nn.Module, int], *, elsewhere: int
    ) -> None:
        self._model = model
        self._devices = devices
        self._elsewhere = elsewhere
        self._begins: list[int] = []
        self._ends: list[tuple[int, int]] = []
        self._parameters = {
            id(parameter): device
            for module, device in devices.items()
            for parameter in module.parameters()
        }
        self._handles: list[torch.utils.hooks.RemovableHandle] = []

    def __call__(self, node: Node) -> int:
        """The device of ``node``."""
        variable = getattr(node, "variable", None)
        if variable is not None:
            return self._parameters.get(id(variable), self._elsewhere)
        number: int = node._sequence_nr()
        position = bisect_right(self._begins, number) - 1
        if position >= 0:
            end, device = self._ends[position]
            if number < end:
                return device
        return self._elsewhere

    def __enter__(self) -> Self:
        self._handles.append(self._model.register_forward_pre_hook(self._forget))
        for module, device in self._devices.items():

            def begin(*_: Any) -> None:
                self._begins.append(torch._C._autograd._get_sequence_nr())

            def end(*_: Any, device: int = device) -> None:
                self._ends.append((torch._C._autograd._get_sequence_nr(), device))

            self._handles.append(module.register_forward_pre_hook(begin))
            self._handles.append(module.register_forward_hook(end))
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def _forget(self, *_: Any) -> None:
        self._begins.clear()
        self._ends.clear()
