"""Derivatives that are zero in each step: what is said of them, and where nothing is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

import agviz
from agviz.analysis.outcome import Outcome
from agviz.analysis.steps.finding import StepFinding
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.analysis.verdict import Verdict


def derivative(y: Tensor, x: Tensor) -> Tensor:
    (found,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return found


def network(activation: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Linear(1, 12), activation, nn.Linear(12, 1))


def recorded(
    model: nn.Module,
    term: Callable[[nn.Module, Tensor, int], Tensor],
    path: Path,
    *,
    steps: int = 6,
) -> tuple[Verdict, ...]:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with agviz.trace(path=path):
        for step in range(steps):
            at = torch.rand(16, 1)
            fit = (model(at) - at.square()).square().mean()
            points = torch.rand(16, 1, requires_grad=True)
            loss = fit + term(model, points, step)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with Trace.open(path) as trace:
        return verdicts(trace)


def curvature(model: nn.Module, points: Tensor, _step: int) -> Tensor:
    return (derivative(derivative(model(points), points), points) + 1).square().mean()


def outside_a_clamp(model: nn.Module, points: Tensor, _step: int) -> Tensor:
    at = points + 2
    term: Tensor = derivative(model(at.clamp(0, 1)), points) + model(at)
    return term.square().mean()


PIECEWISE: dict[str, nn.Module] = {
    "Hardshrink": nn.Hardshrink(0.1),
    "Hardtanh": nn.ReLU6(),
    "LeakyReLU": nn.LeakyReLU(),
    "PReLU": nn.PReLU(),
    "RReLU": nn.RReLU(),
    "ReLU": nn.ReLU(),
    "Softshrink": nn.Softshrink(0.1),
}


@pytest.mark.slow_but_one_in(9)
@pytest.mark.parametrize("name", PIECEWISE)
def test_the_function_is_named(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    (found,) = recorded(network(PIECEWISE[name]), curvature, tmp_path / "t.agviz")
    assert found.outcome is Outcome.FOUND
    assert isinstance(found.basis, StepFinding)
    assert found.basis.kind == "piecewise linear"
    assert found.heading.endswith(f"the second derivative of {name} is zero")
    assert f"What is built of {name} (" in found.paragraph
    assert found.frame is not None
    assert (Path(found.frame.file).name, found.frame.function) == (
        Path(__file__).name,
        "curvature",
    )


@pytest.mark.slow_but_one_in(6)
@pytest.mark.parametrize("activation", [nn.Tanh(), nn.SiLU(), nn.Softplus(), nn.ELU()])
def test_what_is_bent_is_left_alone(activation: nn.Module, tmp_path: Path) -> None:
    torch.manual_seed(0)
    (found,) = recorded(network(activation), curvature, tmp_path / "t.agviz")
    assert found.outcome is Outcome.NOTHING_UNUSUAL


def test_what_may_be_meant_is_said_and_not_judged(tmp_path: Path) -> None:
    torch.manual_seed(0)
    (found,) = recorded(network(nn.Tanh()), outside_a_clamp, tmp_path / "t.agviz")
    assert found.outcome is Outcome.CANT_TELL
    assert found.heading == "torch.autograd.grad gives zeros only, in each of 6 calls"
    assert "Zeros begin at ClampBackward1 (" in found.paragraph
    assert found.frame is not None
    assert found.frame.function == "derivative"


def test_three_steps_are_too_few(tmp_path: Path) -> None:
    (found,) = recorded(network(nn.ReLU()), curvature, tmp_path / "t.agviz", steps=3)
    assert found.outcome is Outcome.NOTHING_UNUSUAL


@pytest.mark.slow
def test_one_call_with_something_else_suffices(tmp_path: Path) -> None:
    def once(model: nn.Module, points: Tensor, step: int) -> Tensor:
        at = points if step == 0 else points + 2
        term: Tensor = derivative(model(at.clamp(0, 1)), points) + model(at)
        return term.square().mean()

    (found,) = recorded(network(nn.Tanh()), once, tmp_path / "t.agviz")
    assert found.outcome is Outcome.NOTHING_UNUSUAL


@pytest.mark.slow
def test_it_is_known_of_the_torch_functional_hessian_too(tmp_path: Path) -> None:
    def bend(model: nn.Module, points: Tensor, _step: int) -> Tensor:
        hessian = torch.autograd.functional.hessian(
            lambda at: model(at).sum(), points[:3].detach(), create_graph=True
        )
        assert isinstance(hessian, Tensor)
        return (hessian.sum() + 1).square()

    torch.manual_seed(0)
    (found,) = recorded(network(nn.ReLU()), bend, tmp_path / "t.agviz")
    assert found.outcome is Outcome.FOUND
    assert found.frame is not None
    assert found.frame.function == "bend"
