"""Measuring the tensors that backward or grad is called on, and what the nodes near them saved."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from agviz.measure.values import Health, SavedValue
    from agviz_engine.graph_task import GraphTask
    from agviz_engine.node import NodeRef

_MOST_ROOTS: Final = 16
_MOST_NUMBERS: Final = 4_096
"""A larger tensor is no loss; to read it would cost what reading a gradient does."""
MOST_FIRST: Final = 4_096
"""Nodes looked at of the first loss that is not finite, to find where it began."""
MOST_LATER: Final = 32
"""Of later ones."""


def measured(task: GraphTask) -> list[tuple[int, Health]]:
    """Number and health of each small tensor that is differentiated."""
    import torch

    from agviz.measure.health import health_of

    found = []
    with torch._C.DisableTorchFunction():
        for number, tensor in enumerate(task.root_tensors[:_MOST_ROOTS]):
            try:
                if isinstance(tensor, torch.Tensor) and tensor.numel() <= _MOST_NUMBERS:
                    found.append((number, health_of(tensor)))
            except RuntimeError:  # an exotic kind of tensor does not say how large it is
                continue
    return found


def saved_near(
    begin: Iterable[NodeRef], most: int
) -> Iterator[tuple[NodeRef, tuple[SavedValue, ...]]]:
    """What at most so many nodes have saved, from some on, nearest first."""
    from agviz.measure.saved import measured as saved_of

    waiting = deque(begin)
    seen: set[int] = set()
    while waiting and len(seen) < most:
        ref = waiting.popleft()
        if ref.index in seen:
            continue
        seen.add(ref.index)
        if not ref.is_accumulate_grad:
            yield ref, saved_of(ref)
        waiting.extend(edge[0] for edge in ref.next_edges if edge is not None)
