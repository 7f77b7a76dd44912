"""What a backward pass costs that has hardly anything to do."""

from __future__ import annotations

import gc
import statistics
import time
from typing import TYPE_CHECKING, NamedTuple

import torch

import agviz_engine
from benchmarks.measure import Ratio

if TYPE_CHECKING:
    from collections.abc import Callable

CALLS = 200


class Tiny(NamedTuple):
    """CPU time of one call, in ns, and the median of the ratios."""

    native_ns: float
    ours_ns: float
    ratio: Ratio


def measure(rounds: int) -> dict[str, Tiny]:
    """``backward()`` without and ``grad()`` with ``inputs=``, on a graph of three nodes."""
    leaf = torch.randn(4, requires_grad=True)
    loss = (leaf * 2).sum()

    def backward() -> None:
        loss.backward(retain_graph=True)

    def grad() -> None:
        torch.autograd.grad(loss, leaf, retain_graph=True)

    return {
        "backward() of 3 nodes (host without inputs)": _compare(backward, rounds),
        "grad() of 3 nodes (host with inputs)": _compare(grad, rounds),
    }


def _compare(call: Callable[[], None], rounds: int) -> Tiny:
    taken: list[tuple[float, float]] = []
    for number in range(rounds + 1):
        if number % 2:
            native, ours = _time(call), _time_installed(call)
        else:
            ours, native = _time_installed(call), _time(call)
        if number:
            taken.append((native, ours))
    return Tiny(
        native_ns=statistics.median(native for native, _ in taken),
        ours_ns=statistics.median(ours for _, ours in taken),
        ratio=Ratio.of([ours / native for native, ours in taken]),
    )


def _time_installed(call: Callable[[], None]) -> float:
    with agviz_engine.installed():
        return _time(call)


def _time(call: Callable[[], None]) -> float:
    gc.collect()
    begin = time.thread_time_ns()
    for _ in range(CALLS):
        call()
    return (time.thread_time_ns() - begin) / CALLS
