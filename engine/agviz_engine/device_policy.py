"""Which device a node belongs to: the device policy.

It is a function, so that device threads can be studied on a machine without any accelerator: then
it names *simulated* devices, whose threads and queues are as real as a GPU's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, cast

from torch.autograd.graph import Node

from agviz_engine.events import CPU_QUEUE

DevicePolicy: TypeAlias = Callable[[Node], int]
"""Maps a node to the index of its device thread; -1 is the thread that called backward."""

_CPU_READY_QUEUE_DEVICES = frozenset({"cpu", "meta", "lazy"})


def real_device(node: Node) -> int:
    """The device of a node's first input that is not on the CPU (``Node::device``)."""
    for metadata in cast("Any", node)._input_metadata:
        try:
            device = metadata.device
        except RuntimeError:  # an input that is never defined
            continue
        if device.type != "cpu":
            if device.type in _CPU_READY_QUEUE_DEVICES:
                return CPU_QUEUE
            return int(device.index or 0)
    return CPU_QUEUE
