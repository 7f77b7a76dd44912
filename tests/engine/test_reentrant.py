"""Backward inside backward: deep, wide, and across device threads."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from agviz_engine import Instrument, events, installed
from tests.engine.builders import apply, leaf
from tests.engine.idle import threads_beside
from tests.engine.oracle import assert_same

if TYPE_CHECKING:
    from agviz_engine.device_policy import DevicePolicy
    from agviz_engine.instruments import Live

POLICIES: dict[str, DevicePolicy | None] = {
    "caller": None,
    "one device": lambda _: 0,
    "two devices": lambda node: node._sequence_nr() % 2,
    "two devices and the caller": lambda node: node._sequence_nr() % 3 - 1,
}


def _made_now(x: Tensor) -> int:
    """The sequence number of a new node: the next one of this thread has one more."""
    node = (x * 1).grad_fn
    assert node is not None
    return node._sequence_nr()


class _Nested(torch.autograd.Function):
    """Twice its input, whose gradient is found by another backward, ``depth`` times over."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, depth: int, width: int) -> Tensor:
        ctx.save_for_backward(x)
        ctx.depth, ctx.width = depth, width
        return x * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (x,) = ctx.saved_tensors
        if ctx.depth < 0:
            raise ValueError("at the bottom")
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            if ctx.depth == 0:
                y = x * 2
            else:
                parts = [apply(_Nested, x, ctx.depth - 1, ctx.width) for _ in range(ctx.width)]
                y = torch.stack(parts).sum(0)
            y.backward(gradients[0])
        return x.grad, None, None


class _Depths(Instrument):
    def __init__(self) -> None:
        self.depths: list[int] = []
        self.names: set[str] = set()

    def graph_task_begun(self, event: events.GraphTaskBegun, _live: Live) -> None:
        self.depths.append(event.reentrant_depth)
        self.names.add(threading.current_thread().name)


@pytest.mark.slow_but_one_in(5)
@pytest.mark.parametrize("first", range(3))
@pytest.mark.parametrize("name", POLICIES)
def test_depth_200(name: str, first: int) -> None:
    x = torch.ones(3, requires_grad=True)
    while _made_now(x) % 3 != first:  # by which the policies choose a device
        pass
    depths, before = _Depths(), set(threading.enumerate())
    with installed(depths, device_policy=POLICIES[name]):
        apply(_Nested, x, 200, 1).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2.0] * 3
    assert len(depths.depths) == 202
    if name in {"caller", "one device"}:
        assert sorted(depths.depths) == list(range(202))
    else:  # each thread counts the calls on it, as total_depth does
        of_level = Counter(depths.depths)
        assert sorted(of_level) == list(range(len(of_level)))
        assert max(of_level.values()) <= 2
    assert any("pool" in thread for thread in depths.names)
    assert not threads_beside(before)


@pytest.mark.parametrize("name", POLICIES)
def test_fan_out_at_every_level(name: str) -> None:
    def program() -> Any:
        x = torch.ones(3, requires_grad=True)
        (apply(_Nested, x, 6, 2).sum() + apply(_Nested, x * 3, 4, 2).sum()).backward()
        return [x.grad]

    ours = assert_same(program, device_policy=POLICIES[name], order=name == "caller")
    assert ours.error is None


@pytest.mark.parametrize("name", POLICIES)
def test_an_error_at_the_bottom_comes_up(name: str) -> None:
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, depth: int) -> Tensor:
            ctx.depth = depth
            return x * 2

        @staticmethod
        def backward(ctx: Any, *_gradients: Any) -> Any:
            if ctx.depth == 0:
                raise ValueError("at the bottom")
            with torch.enable_grad():
                apply(Fails, leaf(3), ctx.depth - 1).sum().backward()

    with installed(device_policy=POLICIES[name]):
        for depth in (3, 40):
            with pytest.raises(ValueError, match="at the bottom"):
                apply(Fails, leaf(3), depth).sum().backward()
        x = torch.ones(3, requires_grad=True)
        (x * 5).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [5.0] * 3
