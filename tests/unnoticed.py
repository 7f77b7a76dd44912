"""A program that notices whatever an instrument does besides listening."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


class Noticed(NamedTuple):
    """What it saw."""

    operations: list[str]
    versions: list[int]
    """Of gradients, in their hooks."""
    enabled: tuple[bool, bool]
    """Gradient mode and autocast, afterwards."""
    profiled: list[str]
    random: list[int]
    """State of the random number generator."""
    gradient: list[Any]
    version: int
    large_allocations: int


def noticed(around: AbstractContextManager[Any]) -> Noticed:
    """Run the program with ``around`` entered before the backward pass."""
    seen: list[str] = []

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    def pack(tensor: Tensor) -> Tensor:
        seen.append("pack")
        return tensor

    torch.manual_seed(0)
    x = torch.randn(300, 70, requires_grad=True)
    versions: list[int] = []
    z = torch.dropout(x, 0.5, train=True).relu()
    z.register_hook(lambda gradient: versions.append(gradient._version))
    loss = (z * z.t().mean()).sum()
    with (
        around,
        torch.autocast("cpu", dtype=torch.bfloat16),
        Counting(),  # type: ignore[no-untyped-call]
        torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved),
        torch.profiler.profile(profile_memory=True, acc_events=True) as profile,
    ):
        seen.clear()
        (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
        operations = list(seen)
        enabled = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
    events: Any = profile.events()
    return Noticed(
        operations,
        versions,
        enabled,
        sorted(event.name for event in events if event.name != "[memory]"),
        torch.get_rng_state().tolist(),
        gradient.tolist(),
        gradient._version,
        sum(e.cpu_memory_usage > 10_000 for e in events if e.name == "[memory]"),
    )
