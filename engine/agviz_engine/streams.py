"""Accelerator streams of a graph task (Note [Streaming backwards] in ``engine.cpp``).

A node runs on the stream its forward op ran on. A gradient that goes from one stream to another is
waited for by the consumer's stream, and kept from being reused before that. When the graph task is
done, the caller's current streams wait for the streams on which leaves got their gradients.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch

from agviz_engine.torch_layout import stream_of

if TYPE_CHECKING:
    from torch import Tensor

    from agviz_engine.node import NodeRef


class GraphStreams:
    """Streams of one graph task; made only where there is an accelerator."""

    def __init__(self) -> None:
        count = torch.accelerator.device_count()
        self._caller = [torch.accelerator.current_stream(i) for i in range(count)]
        self._leaves: dict[tuple[int, int], torch.Stream] = {}
        self._known: dict[tuple[int, int], torch.Stream] = {}

    def of(self, ref: NodeRef) -> torch.Stream | None:
        """The stream a node runs on (``Node::stream``), None for a node of the CPU."""
        device_type = cast("Any", torch.accelerator.current_accelerator()).type
        for slot in range(ref.num_inputs if ref.base else 0):
            found = stream_of(ref, slot)
            if found.device.type == device_type:
                key = found.device.index or 0, found.stream_id
                if key not in self._known:
                    self._known[key] = torch.Stream(
                        stream_id=found.stream_id,
                        device_index=key[0],
                        device_type=found.device_type_number,
                    )
                return self._known[key]
        return None

    @staticmethod
    def hand_over(
        producer: torch.Stream | None, consumer: torch.Stream | None, gradient: Tensor
    ) -> None:
        """Let the consumer's stream wait for a gradient made on the producer's."""
        if producer is None or consumer is None or producer == consumer:
            return
        consumer.wait_event(producer.record_event())
        if gradient.device.type != "cpu":
            gradient.record_stream(consumer)

    def reached_leaf(self, stream: torch.Stream | None) -> None:
        """A node without consumers, or one that was captured, ran on ``stream``."""
        if stream is not None:
            self._leaves[stream.device_index, stream.stream_id] = stream

    def finish(self) -> None:
        """Let the caller's streams wait for all leaves (``exec_post_processing``)."""
        for (device, _), leaf in self._leaves.items():
            caller = self._caller[device]
            if caller != leaf:
                caller.wait_event(leaf.record_event())
