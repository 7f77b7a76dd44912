"""Numbers for tensors and their memory, which keep neither alive and are never given twice.

A tensor is known by the address of its ``TensorImpl``, its memory by that of its ``StorageImpl``.
Torch's weak references keep those small objects, not the elements, from being freed, so that no
other tensor gets the address while it is remembered. Python's own weak references would end with
the Python object of a tensor that a graph still holds.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, cast

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from agviz_engine.tensor_facts import impl_number, storage_address

if TYPE_CHECKING:
    from torch import Tensor

_LEAST: Final = 4_096
"""Tensors, or storages, that are remembered before it is looked which of them are gone."""
NO_MEMORY: Final = -1


class KnownTensor:
    """What is known of a tensor as long as it lives."""

    __slots__ = ("measured", "number", "pin")

    def __init__(self, number: int, pin: Any) -> None:
        self.number = number
        self.pin = pin
        self.measured: tuple[Any, ...] | None = None
        """In which state it was last measured."""


class KnownMemory:
    """What is known of a storage as long as it lives."""

    __slots__ = ("number", "pin", "writes")

    def __init__(self, number: int, pin: StorageWeakRef) -> None:
        self.number = number
        self.pin = pin
        self.writes = 0
        """How many functions were seen to write to it."""


class Identities:
    """Numbers tensors and storages from 0, in order of first appearance."""

    def __init__(self) -> None:
        self._tensors: dict[int, KnownTensor] = {}
        self._memories: dict[int, KnownMemory] = {}
        self._next_tensor = 0
        self._next_memory = 0
        self._room_for_tensors = self._room_for_memories = _LEAST
        self._lock = threading.RLock()

    def tensor(self, tensor: Tensor) -> KnownTensor:
        """The one of this very tensor."""
        number = impl_number(tensor)
        known = self._tensors.get(number)
        if known is None:
            with self._lock:
                pin = cast("Any", torch._C)._WeakTensorRef(tensor)
                known = self._tensors[number] = KnownTensor(self._next_tensor, pin)
                self._next_tensor += 1
                if len(self._tensors) > self._room_for_tensors:
                    self._forget_dead_tensors()
        return known

    def memory(self, tensor: Tensor) -> KnownMemory | None:
        """That of the storage of this tensor; None where it has none of its own."""
        address = storage_address(tensor)
        if not address:
            return None
        known = self._memories.get(address)
        if known is None:
            try:
                pin = StorageWeakRef(tensor.untyped_storage())
            except (RuntimeError, NotImplementedError):
                return None
            with self._lock:
                known = self._memories[address] = KnownMemory(self._next_memory, pin)
                self._next_memory += 1
                if len(self._memories) > self._room_for_memories:
                    self._forget_dead_memories()
        return known

    def forget(self, tensor: Tensor) -> None:
        """Know a tensor no longer: torch refuses to swap one to which there are weak references."""
        with self._lock:
            self._tensors.pop(impl_number(tensor), None)

    def _forget_dead_tensors(self) -> None:
        self._tensors = {k: v for k, v in self._tensors.items() if not v.pin.expired()}
        self._room_for_tensors = max(_LEAST, 2 * len(self._tensors))

    def _forget_dead_memories(self) -> None:
        self._memories = {k: v for k, v in self._memories.items() if not v.pin.expired()}
        self._room_for_memories = max(_LEAST, 2 * len(self._memories))
