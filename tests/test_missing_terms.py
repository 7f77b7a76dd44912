"""Derivatives of which terms are missing since something was computed without a graph."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

import agviz
from agviz.analysis.outcome import Outcome
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.analysis.verdict import Verdict


def asked(program: Callable[[], object], path: Path) -> Verdict:
    torch.manual_seed(0)
    with agviz.trace(path=path, check_forward=True):
        program()
    with Trace.open(path) as trace:
        (verdict,) = verdicts(trace)
    assert len(f"{verdict.heading} {verdict.line} {verdict.paragraph}".split()) <= 120
    return verdict


def line_of(text: str) -> int:
    rows = Path(__file__).read_text(encoding="utf-8").splitlines()
    (number,) = [n for n, row in enumerate(rows, 1) if row.endswith(f"# {text}")]
    return number


# -- statistics ---------------------------------------------------------------------------------


@torch.no_grad()
def moments(x: Tensor) -> tuple[Tensor, Tensor]:
    var, mean = torch.var_mean(x, dim=-1, keepdim=True, unbiased=False)  # moments
    return mean, torch.rsqrt(var + 1e-6)


def of_tokens(x: Tensor) -> Tensor:
    mean, inverse = moments(x)
    return (x - mean) * inverse


def of_channels(x: Tensor) -> Tensor:
    with torch.no_grad():
        mean = x.mean((0, 1), keepdim=True)  # channels
        deviation = x.var((0, 1), keepdim=True).add(1e-5).sqrt()
    return torch.div(x.sub(mean), deviation)


def with_a_graph(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-5)


def less_the_largest(x: Tensor) -> Tensor:
    with torch.no_grad():
        largest = x.amax(-1, keepdim=True)
    chances = (x - largest).exp()
    return chances / chances.sum(-1, keepdim=True)


def averaged_over_steps(x: Tensor, kept: dict[str, Tensor] = {}) -> Tensor:  # noqa: B006 # is kept
    with torch.no_grad():
        mean, deviation = x.mean((0, 1)), x.std((0, 1))
        kept["mean"] = 0.9 * kept.get("mean", mean) + 0.1 * mean
        kept["deviation"] = 0.9 * kept.get("deviation", deviation) + 0.1 * deviation
    return (x - kept["mean"]) / (kept["deviation"] + 1e-5)


def language(normalise: Callable[[Tensor], Tensor]) -> None:
    embed, out = nn.Embedding(20, 8), nn.Linear(8, 20)
    optimizer = torch.optim.AdamW([*embed.parameters(), *out.parameters()], lr=1e-2)
    for _ in range(4):
        tokens = torch.randint(20, (4, 6))
        logits = out(normalise(embed(tokens)))
        optimizer.zero_grad()
        functional.cross_entropy(logits.flatten(0, 1), tokens.roll(1, 1).flatten()).backward()
        optimizer.step()


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize(("normalise", "line"), [(of_tokens, "moments"), (of_channels, "channels")])
def test_statistics_without_a_graph_are_named(
    normalise: Callable[[Tensor], Tensor], line: str, tmp_path: Path
) -> None:
    verdict = asked(lambda: language(normalise), tmp_path / "t.agviz")
    assert verdict.outcome is Outcome.FOUND
    assert "no gradient through its mean and its deviation" in verdict.heading
    assert verdict.frame is not None
    assert verdict.frame.line == line_of(line)


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("normalise", [with_a_graph, less_the_largest, averaged_over_steps])
def test_other_statistics_are_not(normalise: Callable[[Tensor], Tensor], tmp_path: Path) -> None:
    verdict = asked(lambda: language(normalise), tmp_path / "t.agviz")
    assert verdict.outcome is Outcome.NOTHING_UNUSUAL, verdict.heading


def test_a_loss_in_units_of_its_own_deviation_is_fine(tmp_path: Path) -> None:
    def program() -> None:
        actor, critic = nn.Linear(5, 2), nn.Linear(7, 1).requires_grad_(False)
        optimizer = torch.optim.AdamW(actor.parameters(), lr=1e-2)
        for _ in range(4):
            states = torch.randn(32, 5)
            value = critic(torch.cat([states, actor(states).tanh()], -1))
            with torch.no_grad():
                mean, deviation = value.mean(0), value.std(0)
            optimizer.zero_grad()
            (-((value - mean) / (deviation + 1e-5)).mean()).backward()
            optimizer.step()

    verdict = asked(program, tmp_path / "t.agviz")
    assert verdict.outcome is Outcome.NOTHING_UNUSUAL, verdict.heading


# -- inner steps --------------------------------------------------------------------------------


def waves(adapted: Callable[[nn.Module, Tensor, Tensor], dict[str, Tensor]]) -> None:
    """Fits sines after an inner step of each."""
    net = nn.Sequential(nn.Linear(1, 10), nn.Tanh(), nn.Linear(10, 1))
    outer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(3):
        x, phase = torch.randn(10, 1), 3 * torch.rand(1)
        fast = adapted(net, x, (x + phase).sin())
        query = torch.randn(10, 1)
        loss = functional.mse_loss(functional_call(net, fast, (query,)), (query + phase).sin())
        outer.zero_grad()
        loss.backward()
        outer.step()


def without_graph(net: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    names, values = zip(*net.named_parameters(), strict=True)
    grads = torch.autograd.grad(functional.mse_loss(net(x), y), values)  # inner
    return {n: w - 0.1 * g for n, w, g in zip(names, values, grads, strict=True)}


def with_graph(net: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    names, values = zip(*net.named_parameters(), strict=True)
    grads = torch.autograd.grad(functional.mse_loss(net(x), y), values, create_graph=True)
    return {n: w - 0.1 * g for n, w, g in zip(names, values, grads, strict=True)}


def detached(net: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    names, values = zip(*net.named_parameters(), strict=True)
    grads = torch.autograd.grad(functional.mse_loss(net(x), y), values)
    return {n: w - 0.1 * g.detach() for n, w, g in zip(names, values, grads, strict=True)}


def test_an_inner_step_without_graph_is_said(tmp_path: Path) -> None:
    verdict = asked(lambda: waves(without_graph), tmp_path / "t.agviz")
    assert verdict.outcome is Outcome.CANT_TELL
    assert "second derivatives" in verdict.heading
    assert verdict.frame is not None
    assert verdict.frame.line == line_of("inner")


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("adapted", [with_graph, detached])
def test_an_inner_step_that_is_meant_so_is_fine(
    adapted: Callable[[nn.Module, Tensor, Tensor], dict[str, Tensor]], tmp_path: Path
) -> None:
    verdict = asked(lambda: waves(adapted), tmp_path / "t.agviz")
    assert verdict.outcome is Outcome.NOTHING_UNUSUAL, verdict.heading


def test_steps_without_gradients_are_fine(tmp_path: Path) -> None:
    """As of Reptile: nothing goes back through them."""

    def program() -> None:
        weight = nn.Parameter(torch.randn(3))
        x, y = torch.randn(20, 3), torch.randn(20)
        for _ in range(4):
            (grad,) = torch.autograd.grad((x @ weight - y).square().mean(), [weight])
            with torch.no_grad():
                fast = weight - 0.1 * grad
            (x @ (weight - 0.01 * fast) - y).square().mean().backward()
            weight.grad = None

    verdict = asked(program, tmp_path / "t.agviz")
    assert verdict.outcome is Outcome.NOTHING_UNUSUAL, verdict.heading
