"""The engine on a CUDA device: one thread per device, streams as in the native engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

from agviz_engine import events, installed
from agviz_engine.instruments import Instrument, Live
from tests.engine.oracle import assert_same

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


class _Threads(Instrument):
    def __init__(self) -> None:
        self.queues: set[int] = set()

    def worker_started(self, event: events.WorkerStarted, _live: Live) -> None:
        self.queues.add(event.queue)


def _two_streams() -> Sequence[Tensor | None]:
    x = torch.randn(512, 512, device="cuda", requires_grad=True)
    side = torch.cuda.Stream()
    h = x @ x
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        k = (h * 2).tanh() @ h
    torch.cuda.current_stream().wait_stream(side)
    (k + h).sum().backward()
    return [x.grad]


def _model() -> Sequence[Tensor | None]:
    model = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8)).cuda()
    model(torch.randn(32, 64, device="cuda")).pow(2).mean().backward()
    return [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize("program", [_model, _two_streams])
def test_same_gradients_on_the_device(program: object) -> None:
    assert_same(program, order=False)  # type: ignore[arg-type]


def test_nodes_run_on_a_thread_of_their_device() -> None:
    threads = _Threads()
    with installed(threads):
        _model()
    assert 0 in threads.queues


def test_gradients_are_ready_on_the_callers_stream() -> None:
    x = torch.ones(1 << 22, device="cuda", requires_grad=True)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x
        for _ in range(50):
            y = y * 1.0
    torch.cuda.current_stream().wait_stream(side)
    with installed():
        y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, torch.ones_like(x))
