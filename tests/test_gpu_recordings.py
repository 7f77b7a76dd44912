"""Recordings of programs that train on a CUDA device, and what is measured there."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

import agviz
from agviz.measure import device_kernel, elements
from agviz.measure.health import health_of, measure, unseen

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

_VALUES: dict[str, Callable[[Tensor], Any]] = {
    "plain": lambda _: None,
    "NaN": lambda flat: flat[::7].fill_(math.nan),
    "infinities": lambda flat: (flat[0].fill_(math.inf), flat[-1].fill_(-math.inf)),
    "nothing finite": lambda flat: flat.fill_(math.nan),
    "zeros": lambda flat: flat.zero_(),
    "large": lambda flat: flat.mul_(3e4),
    "tiny": lambda flat: flat.mul_(1e-7),
}
_DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64]
_LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "as it is": lambda tensor: tensor,
    "transposed": lambda tensor: tensor.mT if tensor.dim() > 1 else tensor,
    "expanded": lambda tensor: tensor.unsqueeze(0).expand(3, *tensor.shape),
    "every second": lambda tensor: tensor[..., ::2] if tensor.dim() else tensor,
}


@pytest.mark.parametrize("dtype", _DTYPES)
@pytest.mark.parametrize("layout", _LAYOUTS)
def test_health_is_that_of_the_same_numbers_on_the_host(dtype: torch.dtype, layout: str) -> None:
    torch.manual_seed(0)
    for shape in ((), (0,), (7,), (33, 65), (300, 1001), (3, 4, 5, 6), (1 << 22,)):
        for change in _VALUES.values():
            wide = torch.complex64 if dtype.is_complex else torch.float32
            tensor = torch.randn(shape, dtype=wide).to(dtype)
            if tensor.numel():
                change(tensor.view(-1))
            expected = health_of(_LAYOUTS[layout](tensor))
            there = _LAYOUTS[layout](tensor.cuda())
            with unseen():
                dispatched = measure(there)
            for found in (health_of(there), dispatched):
                assert found[:2] == expected[:2]
                assert found[3:11] == expected[3:11]  # layout, sizes, counts
                assert found[11:13] == expected[11:13]  # min and max
                for one, other in zip(found[13:15], expected[13:15], strict=True):
                    assert one == other or one == pytest.approx(other, rel=1e-5, abs=1e-6)


def test_the_same_memory_is_measured_to_the_same_bits() -> None:
    tensor = torch.randn(1 << 20, device="cuda")
    assert {device_kernel.measured(tensor) for _ in range(20)} == {device_kernel.measured(tensor)}


def test_the_kernel_finds_what_reductions_find(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor = torch.randn(12345, device="cuda")
    found = elements.numbers_of(tensor)
    monkeypatch.setattr(device_kernel, "_code", lambda _: None)
    other = elements.numbers_of(tensor)
    assert found[:8] == other[:8]
    assert found[8:] == pytest.approx(other[8:], rel=1e-5, abs=1e-7)


def test_what_is_measured_on_another_stream_has_been_made() -> None:
    """The kernel runs behind what is queued on the stream that is current."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        tensor = torch.zeros(1 << 16, device="cuda")
        torch.cuda._sleep(50_000_000)
        tensor.add_(3)
        assert health_of(tensor).min == 3


_NAN = """
import torch
from torch import nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 1)).cuda()
data = torch.randn(8, 16, device="cuda")
data[3] = 0.0
norm = (model(data) * data.abs().sum(1, keepdim=True)).abs().sqrt()
norm.mean().backward()
"""


_IN_BOTH = {"QueuePush", "QueuePop", "NodeStarted", "DependencyDecremented", "LeafAccumulated"}


@pytest.mark.parametrize("engine", ["exact", "native"])
def test_a_failure_on_the_device_is_explained(engine: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_NAN, encoding="utf-8")
    agviz_command = [sys.executable, "-m", "agviz"]
    run = [*agviz_command, "run", "--engine", engine, "--output", "run.agviz", "train.py"]
    subprocess.run(run, cwd=tmp_path, check=True, capture_output=True)
    said = subprocess.run(
        [*agviz_command, "explain", "run.agviz"],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    ).stdout
    assert "sqrt at zero" in said
    assert "train.py:8" in said
    assert "sample 3" in said


@pytest.mark.parametrize("engine", ["exact", "native"])
def test_a_recorded_training_is_as_without(engine: str, tmp_path: Path) -> None:
    def train() -> list[Tensor]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 4))
        model = model.cuda()
        optimizer = torch.optim.AdamW(model.parameters())
        scaler = torch.amp.GradScaler("cuda")
        for _ in range(5):
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(torch.randn(16, 64, device="cuda")).float().pow(2).mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        return [parameter.detach().clone() for parameter in model.parameters()]

    without = train()
    with agviz.trace(path=tmp_path / "run.agviz", engine=engine) as recorded:
        trained = train()
    assert all(torch.equal(one, other) for one, other in zip(without, trained, strict=True))
    assert len(recorded.graph_tasks) == 5


def test_both_engines_record_the_same_of_the_device(tmp_path: Path) -> None:
    found = []
    for engine in ("exact", "native"):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1)).cuda()
        data = torch.randn(8, 32, device="cuda")
        with agviz.trace(path=tmp_path / f"{engine}.agviz", engine=engine) as recorded:
            model(data).pow(2).mean().backward()
        found.append([(row.event, row.node) for row in recorded.events])
    exact, observed = ([each for each in events if each[0] in _IN_BOTH] for events in found)
    assert exact == observed
    assert {kind for kind, _ in exact} == _IN_BOTH
