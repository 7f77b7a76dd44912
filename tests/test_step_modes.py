"""Training that goes on in evaluation mode after a validation is told; what is meant is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import agviz
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self


def validate(model: nn.Module, *, goes_back: bool) -> None:
    model.eval()  # cause
    with torch.no_grad():
        model(torch.randn(8, 4))
    if goes_back:
        model.train()


def train(model: nn.Module, *, goes_back: bool) -> None:
    torch.manual_seed(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(12):
        loss = model(torch.randn(8, 4)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 4 == 3:
            validate(model, goes_back=goes_back)


def recorded(path: Path, model: nn.Module, *, goes_back: bool) -> Path:
    with agviz.trace(path=path, check_forward=True):
        train(model, goes_back=goes_back)
    return path


def network() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1)
    )


def test_the_switch_is_named_after_which_all_stays_in_evaluation_mode(tmp_path: Path) -> None:
    with Trace.open(recorded(tmp_path / "t.agviz", network(), goes_back=False)) as trace:
        found = verdicts(trace)[0]
    assert found.is_found
    assert found.source == "model.eval()  # cause"
    assert "in 8 of 12 passes that were looked at" in found.paragraph
    assert len(f"{found.heading} {found.paragraph}".split()) <= 120


def test_who_goes_back_to_training_mode_is_left_alone(tmp_path: Path) -> None:
    with Trace.open(recorded(tmp_path / "t.agviz", network(), goes_back=True)) as trace:
        assert not verdicts(trace)[0].is_found


class Frozen(nn.BatchNorm1d):
    """Uses what it has learnt before, whatever the mode of the model."""

    def train(self, mode: bool = True) -> Self:
        del mode
        return super().train(mode=False)


def test_what_is_in_evaluation_mode_from_the_start_is_left_alone(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 8), Frozen(8).train(), nn.ReLU(), nn.Linear(8, 1))
    with Trace.open(recorded(tmp_path / "t.agviz", model, goes_back=True)) as trace:
        assert not verdicts(trace)[0].is_found


def test_who_is_never_in_training_mode_after_a_first_validation_is_told(tmp_path: Path) -> None:
    model = network()
    with agviz.trace(path=tmp_path / "t.agviz", check_forward=True):
        validate(model, goes_back=False)
        train(model, goes_back=False)
    with Trace.open(tmp_path / "t.agviz") as trace:
        found = verdicts(trace)[0]
    assert found.is_found
    assert found.source == "model.eval()  # cause"
    assert "batch norm has yet to see a batch" in found.paragraph
    assert len(f"{found.heading} {found.paragraph}".split()) <= 120


def test_what_has_learnt_its_statistics_before_is_left_alone(tmp_path: Path) -> None:
    model = network()
    model(torch.randn(8, 4) + 2)
    with agviz.trace(path=tmp_path / "t.agviz", check_forward=True):
        validate(model, goes_back=False)
        train(model, goes_back=False)
    with Trace.open(tmp_path / "t.agviz") as trace:
        assert not verdicts(trace)[0].is_found


def stages(path: Path, *, goes_on: str, affine_only: bool = False) -> Path:
    """Trains a network, freezes it but for its head, and goes on."""
    torch.manual_seed(0)
    body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU())
    model = nn.Sequential(body, nn.Linear(8, 1))
    with agviz.trace(path=path, check_forward=True):
        for step in range(24):
            if step == 0 or (step == 12 and goes_on != "in turns"):
                optimizer = torch.optim.SGD(
                    [one for one in model.parameters() if one.requires_grad], lr=0.01
                )
            model.train()  # moves
            if goes_on == "evaluating" and step >= 12:
                body.eval()
            loss = model(torch.randn(8, 4)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step == 11 or goes_on == "in turns":
                (body[1] if affine_only else body).requires_grad_(
                    goes_on == "in turns" and step % 2 == 0
                )
    return path


def test_a_frozen_part_whose_statistics_move_is_told(tmp_path: Path) -> None:
    with Trace.open(stages(tmp_path / "t.agviz", goes_on="training")) as trace:
        found = verdicts(trace)[0]
    assert found.is_found
    assert found.source.startswith("model.train()")
    assert "running_mean" in found.paragraph
    assert len(f"{found.heading} {found.paragraph}".split()) <= 120


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize(
    ("goes_on", "affine_only"), [("evaluating", False), ("training", True), ("in turns", False)]
)
def test_statistics_that_are_meant_to_move_or_do_not_are_left_alone(
    goes_on: str, affine_only: bool, tmp_path: Path
) -> None:
    path = stages(tmp_path / "t.agviz", goes_on=goes_on, affine_only=affine_only)
    with Trace.open(path) as trace:
        assert not verdicts(trace)[0].is_found
