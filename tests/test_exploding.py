"""Gradients that grow step by step until a step goes too far: where, and not a rate too large."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

import agviz
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agviz.analysis.verdict import Verdict


class Recurrent(nn.Module):
    """A cell that is called again and again, whose state grows ``times`` in each step."""

    def __init__(self, times: float) -> None:
        super().__init__()
        self.cell = nn.Linear(16, 16, bias=False)
        self.out = nn.Linear(16, 1)
        nn.init.orthogonal_(self.cell.weight, gain=times)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(30):
            x = self.cell(x)  # again
        found: Tensor = self.out(x)
        return found


class Deep(nn.Sequential):
    """Many layers, each with weights that are too large."""

    def __init__(self) -> None:
        layers = [nn.Linear(16, 16) for _ in range(20)]
        for layer in layers:
            nn.init.normal_(layer.weight, std=1.0)
        super().__init__(*(nn.Sequential(layer, nn.ReLU()) for layer in layers), nn.Linear(16, 1))


class Springs(nn.Module):
    """Masses between springs whose stiffness is learnt, by steps in time of size ``step``."""

    def __init__(self, step: float) -> None:
        super().__init__()
        self.log_stiffness = nn.Parameter(torch.full((17,), 3.5))
        self.step = step

    def forward(self, x: Tensor) -> Tensor:
        speed, stiffness = torch.zeros_like(x), self.log_stiffness.exp()
        path = []
        for _ in range(36):
            stretch = nn.functional.pad(x, (1, 1)).diff(dim=1)
            tension = stiffness * stretch  # again
            force = tension.diff(dim=1) - 0.4 * speed
            x, speed = x + self.step * speed, speed + self.step * force
            path.append(x)
        return torch.stack(path)


def trained(
    path: Path,
    model: nn.Module,
    rate: float,
    *,
    most: float = 0.0,
    kind: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
) -> Verdict:
    torch.manual_seed(1)
    optimizer = kind(model.parameters(), lr=rate)
    with agviz.trace(path=path):
        for _ in range(6):
            optimizer.zero_grad()
            (model(torch.randn(8, 16)) - 1).square().mean().backward()
            if most:
                torch.nn.utils.clip_grad_norm_(model.parameters(), most)
            optimizer.step()
    with Trace.open(path) as trace:
        return verdicts(trace)[0]


def test_a_recurrence_that_makes_gradients_grow_is_named(tmp_path: Path) -> None:
    torch.manual_seed(0)
    found = trained(tmp_path / "t.agviz", Recurrent(2.0), 1e-3)
    assert found.heading.startswith("the gradient explodes: it grows ")
    assert found.source.endswith("# again")
    assert "multiply by cell.weight" in found.paragraph
    assert len(f"{found.heading} {found.paragraph}".split()) <= 120


def test_so_is_depth(tmp_path: Path) -> None:
    torch.manual_seed(0)
    found = trained(tmp_path / "t.agviz", Deep(), 1e-3)
    assert found.heading.startswith("the gradient explodes: it grows ")
    assert "multiply by" not in found.paragraph


@pytest.mark.slow
def test_steps_in_time_beyond_the_limit_of_stability_are_no_weights_that_are_too_large(
    tmp_path: Path,
) -> None:
    found = stepped(tmp_path / "t.agviz", Springs(0.08))
    assert found.heading.startswith("the gradient explodes: it grows ")
    assert found.source.endswith("# again")
    assert "limit of stability" in found.paragraph
    assert "smaller weights" not in found.paragraph
    assert len(f"{found.heading} {found.paragraph}".split()) <= 120
    steady = stepped(tmp_path / "u.agviz", Springs(0.01))
    assert not steady.heading.startswith("the gradient explodes")


def test_one_that_keeps_their_size_is_no_explosion(tmp_path: Path) -> None:
    torch.manual_seed(0)
    found = trained(tmp_path / "t.agviz", Recurrent(1.0), 1e4)
    assert found.is_found
    assert "explodes" not in found.heading


def test_who_clips_is_left_alone(tmp_path: Path) -> None:
    torch.manual_seed(0)
    found = trained(tmp_path / "t.agviz", Recurrent(1.6), 1e-4, most=1.0)
    assert not found.is_found, found.heading


def stepped(path: Path, model: nn.Module, *, most: float = 0.0) -> Verdict:
    """Of six steps of Adam, which nothing makes infinite."""
    return trained(path, model, 1e-3, most=most, kind=torch.optim.Adam)


def test_what_explodes_from_the_first_pass_on_is_named_though_all_is_finite(tmp_path: Path) -> None:
    found = stepped(tmp_path / "a.agviz", Recurrent(2.0))
    assert "in each of 30 steps" in found.heading
    assert found.source.endswith("# again")
    assert "before any step, and so it still does" in found.paragraph
    assert len(f"{found.heading} {found.paragraph}".split()) <= 120
    deep = stepped(tmp_path / "b.agviz", Deep())
    assert "the gradient explodes" in deep.heading


@pytest.mark.slow
def test_what_is_clipped_or_of_one_size_is_not(tmp_path: Path) -> None:
    assert "explodes" not in stepped(tmp_path / "a.agviz", Recurrent(1.0)).heading
    assert "explodes" not in stepped(tmp_path / "b.agviz", Recurrent(2.0), most=1.0).heading


def test_nothing_is_asked_of_passes_that_give_gradients_back(tmp_path: Path) -> None:
    model = nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with agviz.trace(path=tmp_path / "t.agviz"):
        for _ in range(3):
            weights = list(model.parameters())
            gradients = torch.autograd.grad(model(torch.randn(4, 16)).square().mean(), weights)
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.grad = gradient
            optimizer.step()
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert not verdicts(trace)[0].is_found


class Contacts(nn.Module):
    """Layers that sum what comes from neighbours, of which each place has many."""

    def __init__(self, *, is_mean: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(6))
        self.out = nn.Linear(16, 1)
        near = (torch.rand(40, 40) < 0.5).float()
        self.register_buffer("near", near / near.sum(1, keepdim=True) if is_mean else near)

    def forward(self, x: Tensor) -> Tensor:
        h = x.expand(40, *x.shape).transpose(0, 1)
        near = torch.as_tensor(self.near).expand(len(x), 40, 40)
        for layer in self.layers:
            h = h + torch.relu(near @ layer(h))
        found: Tensor = self.out(h.mean(1))
        return found


@pytest.mark.slow
def test_sums_over_neighbours_make_less_growth_a_fault(tmp_path: Path) -> None:
    torch.manual_seed(0)
    found = trained(tmp_path / "t.agviz", Contacts(is_mean=False), 1e-12)
    assert found.heading.startswith("the gradient explodes: it grows ")
    assert "divided by their number" in found.paragraph
    mean = trained(tmp_path / "u.agviz", Contacts(is_mean=True), 1e-6)
    assert not mean.is_found, mean.heading
