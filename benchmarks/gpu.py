"""Training steps on a CUDA device, timed by torch's own events: `python -m benchmarks.gpu`.

A sample is the median of some steps: forward and backward of a model, from an event before to an
event behind, the device's clock. Each is divided by the native one right before it.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import torch
from torch import Tensor, nn

import agviz
import agviz_engine
from agviz_engine.observe.observing_engine import observed
from benchmarks.contenders import NATIVE, Contender
from benchmarks.graphs import Residual

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CONTENDERS: Final = (
    NATIVE,
    Contender("exact, engine alone", agviz_engine.installed),
    Contender(
        "exact, recorded, no values",
        lambda: agviz.trace(engine="exact", values="none", provenance=False),
    ),
    Contender("exact, recorded with defaults", lambda: agviz.trace(engine="exact")),
    Contender("observed, nothing recorded", observed),
    Contender(
        "observed, recorded, no values",
        lambda: agviz.trace(engine="native", values="none", provenance=False),
    ),
    Contender("observed, recorded with defaults", lambda: agviz.trace(engine="native")),
    Contender("native + detect_anomaly", lambda: torch.autograd.set_detect_anomaly(True)),
    Contender("native + torch.profiler", torch.profiler.profile),
)
WARM_UP: Final = 2
STEPS: Final = 5


class Step(NamedTuple):
    """Time of one step, ms."""

    device: float
    host: float
    """Until the last kernel was launched: what Python costs hides behind the device's work."""


class _Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.attention(self.first(x)).view(batch, length, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + cast("Tensor", self.mlp(self.second(x)))


def _transformer(*, precise: bool, batch: int) -> Callable[[], Tensor]:
    """12 layers of width 768 over 512 tokens, as GPT-2's small one."""
    model = nn.Sequential(*(_Block(768, 12) for _ in range(12)), nn.LayerNorm(768)).cuda()
    data = torch.randn(batch, 512, 768, device="cuda")

    def loss() -> Tensor:
        model.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=not precise):
            return cast("Tensor", model(data)).float().pow(2).mean()

    return loss


def _conv_net() -> Callable[[], Tensor]:
    """16 residual blocks of 256 channels, 28 by 28, batch 64."""
    model = nn.Sequential(
        nn.Conv2d(3, 256, 3, padding=1), *(Residual(256, 256, 1) for _ in range(16))
    )
    model = model.cuda()
    data = torch.randn(64, 3, 28, 28, device="cuda")

    def loss() -> Tensor:
        model.zero_grad(set_to_none=True)
        result: Tensor = model(data).mean()
        return result

    return loss


def _mlp() -> Callable[[], Tensor]:
    """60 times Linear of 64 by 64 and Tanh: nothing for the device to do, all time is launching."""
    layers: list[nn.Module] = []
    for _ in range(60):
        layers += [nn.Linear(64, 64), nn.Tanh()]
    model = nn.Sequential(*layers).cuda()
    data = torch.randn(32, 64, device="cuda")

    def loss() -> Tensor:
        model.zero_grad(set_to_none=True)
        result: Tensor = model(data).pow(2).mean()
        return result

    return loss


MODELS: Final[dict[str, Callable[[], Callable[[], Tensor]]]] = {
    "transformer, bfloat16, batch 16": lambda: _transformer(precise=False, batch=16),
    "transformer, float32, batch 4": lambda: _transformer(precise=True, batch=4),
    "conv net, float32, batch 64": _conv_net,
    "small MLP of 300 nodes": _mlp,
}


def _step(loss: Callable[[], Tensor]) -> Step:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    began = time.perf_counter_ns()
    begin.record()
    loss().backward()
    end.record()
    host = (time.perf_counter_ns() - began) / 1e6
    torch.cuda.synchronize()
    return Step(begin.elapsed_time(end), host)


def _sample(loss: Callable[[], Tensor], contender: Contender) -> Step:
    around: contextlib.AbstractContextManager[Any] = contender.around()
    with around:
        steps = [_step(loss) for _ in range(WARM_UP + STEPS)][WARM_UP:]
    return Step(*(statistics.median(times) for times in zip(*steps, strict=True)))


def main(given: Sequence[str] | None = None) -> None:
    """Print a table for each model."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args(given).rounds
    if not torch.cuda.is_available():
        parser.exit(1, "benchmarks.gpu: torch sees no CUDA device here; run it where it does\n")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        _compare(rounds)


def _compare(rounds: int) -> None:
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    for title, make in MODELS.items():
        loss = make()
        for _ in range(5):
            _step(loss)
        taken: dict[str, list[tuple[Step, Step]]] = {each.title: [] for each in CONTENDERS}
        for _ in range(rounds):
            for contender in CONTENDERS:
                native = _sample(loss, NATIVE)
                taken[contender.title].append((native, _sample(loss, contender)))
        natives = [native for pairs in taken.values() for native, _ in pairs]
        device = statistics.median(native.device for native in natives)
        host = statistics.median(native.host for native in natives)
        print(f"\n{title}: native {device:.2f} ms, launched after {host:.2f} ms")
        for name, pairs in taken.items():
            ratios = sorted(other.device / native.device for native, other in pairs)
            launched = statistics.median(other.host for _, other in pairs)
            print(
                f"  {name:36} {statistics.median(ratios):6.2f} ({ratios[0]:.2f} to"
                f" {ratios[-1]:.2f}), launched after {launched:8.2f} ms"
            )
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
