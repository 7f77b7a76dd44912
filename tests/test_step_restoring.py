"""A state dict that is loaded after some steps, and is no copy, is told; what is meant is not."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import agviz
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor

    Kept = dict[str, Tensor]


def live(model: nn.Module) -> Kept:
    return model.state_dict()  # cause


def copied(model: nn.Module) -> Kept:
    return copy.deepcopy(model.state_dict())


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))


def train(
    model: nn.Module, keep: Callable[[nn.Module], Kept], restore: Callable[[nn.Module, Kept], None]
) -> None:
    """Goes back to what was kept two steps before, as where the loss has become worse."""
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    kept: Kept = {}
    for step in range(12):
        loss = model(torch.randn(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 1:
            kept = keep(model)
        elif step % 5 == 3:
            restore(model, kept)


def back(model: nn.Module, kept: Kept) -> None:
    model.load_state_dict(kept)


def round_trip(model: nn.Module, _: Kept) -> None:
    model.load_state_dict(model.state_dict())


def with_another_head(model: nn.Module, kept: Kept) -> None:
    model.load_state_dict({**kept, "3.bias": torch.zeros(1)})


def into_another(_: nn.Module, kept: Kept) -> None:
    network().load_state_dict(kept)


def test_weights_that_were_never_copied_are_told(tmp_path: Path) -> None:
    model = network()
    with agviz.trace(path=tmp_path / "t.agviz", check_forward=True):
        train(model, live, back)
    with Trace.open(tmp_path / "t.agviz") as trace:
        found = verdicts(trace)[0]
    assert found.is_found
    assert found.source == "return model.state_dict()  # cause"
    assert "2 steps later it held what they had become" in found.paragraph
    assert len(f"{found.heading} {found.paragraph}".split()) <= 120


@pytest.mark.parametrize(
    ("keep", "restore"),
    [(copied, back), (live, round_trip), (live, with_another_head), (live, into_another)],
)
def test_what_restores_something_or_is_not_to_is_left_alone(
    keep: Callable[[nn.Module], Kept],
    restore: Callable[[nn.Module, Kept], None],
    tmp_path: Path,
) -> None:
    model = network()
    with agviz.trace(path=tmp_path / "t.agviz", check_forward=True):
        train(model, keep, restore)
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert not verdicts(trace)[0].is_found


def detached(model: nn.Module) -> Kept:
    return {name: p.detach() for name, p in model.named_parameters()}  # cause


def cloned(model: nn.Module) -> Kept:
    return {name: p.detach().clone() for name, p in model.named_parameters()}


def copied_back(model: nn.Module, kept: Kept) -> None:
    for name, p in model.named_parameters():
        p.data.copy_(kept[name])


def averaged(model: nn.Module, kept: Kept) -> None:
    with torch.no_grad():
        for name, p in model.named_parameters():
            kept[name].lerp_(p, 0.1)


def averaged_by_parts(model: nn.Module, kept: Kept) -> None:
    with torch.no_grad():
        for name, p in model.named_parameters():
            kept[name].mul_(0.9).add_(p, alpha=0.1)


def decayed(model: nn.Module, kept: Kept) -> None:
    assert kept
    for p in model.parameters():
        p.data.add_(p.data, alpha=-1e-3)


@pytest.mark.parametrize("use", [copied_back, averaged, averaged_by_parts])
def test_a_shadow_that_shares_memory_is_told(
    use: Callable[[nn.Module, Kept], None], tmp_path: Path
) -> None:
    for keep, is_wrong in ((detached, True), (cloned, False)):
        model = network()
        with agviz.trace(path=tmp_path / "t.agviz", check_forward=True):
            train(model, keep, use)
        with Trace.open(tmp_path / "t.agviz") as trace:
            found = verdicts(trace)[0]
        assert found.is_found is is_wrong, found
        assert found.source.endswith("# cause") is is_wrong


def test_what_a_parameter_takes_of_itself_is_left_alone(tmp_path: Path) -> None:
    model = network()
    with agviz.trace(path=tmp_path / "t.agviz", check_forward=True):
        train(model, detached, decayed)
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert not verdicts(trace)[0].is_found
