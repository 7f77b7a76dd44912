"""Answers claim no more than was measured: beside each cause, what looks like it and is another."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from agviz.analysis.causes import Cause
from agviz.analysis.outcome import Outcome
from tests.answers_support import answered, asked

SOURCE = Path(__file__).read_text(encoding="utf-8").splitlines()


def is_cause(line: int) -> bool:
    return SOURCE[line - 1].endswith("# cause")


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize("is_separable", [True, False])
def test_zeros_are_no_fault_only_where_steps_have_brought_the_loss_to_nothing(
    tmp_path: Path, is_separable: bool
) -> None:
    def program() -> None:
        x = torch.cat([torch.randn(40, 2) + 6, torch.randn(40, 2) - 6])
        labels = torch.arange(2).repeat_interleave(40) if is_separable else torch.arange(80) % 2
        model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.3)
        for _ in range(120):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), labels).backward()
            optimizer.step()

    rows = asked(tmp_path / "t.agviz", program)
    found = [row for row in rows.values() if not row.is_there]
    assert bool(found) or not is_separable
    assert all(row.is_fine == is_separable for row in found)
    assert {row.cause for row in found} <= ({Cause.LEARNT} if is_separable else set(Cause))


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_a_dropout_of_everything_is_told_with_the_line_that_made_it(
    tmp_path: Path, rate: float
) -> None:
    def program() -> None:
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(rate))  # cause
        model(torch.randn(3, 4)).sum().backward()

    row = asked(tmp_path / "t.agviz", program)["0.weight"]
    if rate < 1:
        assert row.is_there
    else:
        assert row.cause is Cause.DROPPED
        assert row.frame is not None
        assert is_cause(row.frame.line)


@pytest.mark.parametrize("is_trained", [False, True])
def test_a_parameter_that_is_infinite_from_the_start_is_no_matter_of_a_step(
    tmp_path: Path, is_trained: bool
) -> None:
    class Decay(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.log_rates = nn.Parameter(torch.linspace(0, 1, 4).log())  # cause

        def forward(self, x: Tensor) -> Tensor:
            return x * self.log_rates

    def program() -> None:
        model, other = Decay(), nn.Linear(1, 1)
        if is_trained:
            optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
            other(torch.ones(1)).sum().backward()
            optimizer.step()
        model(torch.randn(3, 4)).square().mean().backward()

    said = answered(tmp_path / "t.agviz", program)
    assert ("No optimizer had stepped" in said.paragraph) != is_trained
    assert ("Look at the step before" in said.paragraph) == is_trained
    if not is_trained:
        made = re.search(r"made at \S*test_claims\.py:(\d+)", said.paragraph)
        assert made is not None
        assert is_cause(int(made[1]))


@pytest.mark.parametrize("factor", [1.0, 400.0])
def test_a_softmax_that_is_summed_is_not_called_saturated(tmp_path: Path, factor: float) -> None:
    gate = nn.Linear(8, 4)

    def program() -> None:
        shares = (gate(torch.randn(32, 8)) * factor).softmax(-1)
        used = shares.sum(-1) if factor == 1 else shares[:, 0]  # summed, or saturated
        (used - 0.25).square().mean().backward()

    row = asked(tmp_path / "t.agviz", program)["weight"]
    if factor == 1:
        assert row.gradient in {"faint", "zero"}
        assert "saturated" not in row.reason
        assert "the same for all entries" in row.reason
    else:
        assert "the same for all entries" not in row.reason


@pytest.mark.parametrize("is_zero", [True, False])
def test_a_hook_that_only_looks_is_not_blamed_for_the_zeros_of_a_factor(
    tmp_path: Path, is_zero: bool
) -> None:
    first, last = nn.Linear(3, 4), nn.Linear(4, 2)
    norms: list[Tensor] = []
    if is_zero:
        nn.init.zeros_(last.weight)

    def program() -> None:
        hidden = last(first(torch.randn(5, 3)))
        node = hidden.grad_fn
        assert node is not None
        node.register_hook(lambda _, given: norms.append(given[0]))
        hidden.square().mean().backward()

    rows = asked(tmp_path / "t.agviz", program)
    assert norms
    found = [row for row in rows.values() if not row.is_there]
    assert bool(found) == is_zero
    assert {row.cause for row in found} <= {Cause.ZERO_FACTOR}


def test_a_module_that_is_called_in_the_place_of_another_is_told(tmp_path: Path) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc1 = nn.Linear(8, 8)
            self.fc2 = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Tensor:
            x = self.fc1(x).relu()
            again: Tensor = self.fc1(x)  # cause
            return again.relu()

    net = Net()
    row = asked(tmp_path / "t.agviz", lambda: net(torch.randn(2, 8)).sum().backward())["fc2.weight"]
    assert row.cause is Cause.UNUSED
    assert "fc1" in row.reason
    assert row.frame is not None
    assert is_cause(row.frame.line)


@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_the_gradient_of_what_is_no_leaf_is_told_where_it_is_read(tmp_path: Path) -> None:
    def program() -> None:
        weight = torch.randn(5, 3, requires_grad=True) * 0.1  # cause
        (torch.randn(2, 5) @ weight).sum().backward()
        assert weight.grad is None

    said = answered(tmp_path / "t.agviz", program)
    assert said.outcome is Outcome.FOUND
    assert "no leaf" in said.heading
    assert said.frame is not None
    assert is_cause(said.frame.line)


def test_a_gradient_that_is_retained_or_of_a_leaf_may_be_read(tmp_path: Path) -> None:
    def program() -> None:
        weight = torch.randn(5, 3, requires_grad=True)
        hidden = torch.randn(2, 5) @ weight
        hidden.retain_grad()
        hidden.sum().backward()
        assert hidden.grad is not None
        assert weight.grad is not None

    assert answered(tmp_path / "t.agviz", program).outcome is Outcome.NOTHING_UNUSUAL


@pytest.mark.filterwarnings("ignore:The .grad attribute")
def test_a_name_that_is_bound_to_a_new_tensor_is_told(tmp_path: Path) -> None:
    def program() -> None:
        weight = torch.zeros(4, requires_grad=True)
        for _ in range(2):
            (torch.randn(3, 4) @ weight - 1).square().mean().backward()
            if weight.grad is None:
                break
            weight = weight - 0.1 * weight.grad
        (torch.randn(3, 4) @ weight).sum().backward()
        weight = weight - 0.1 * (weight.grad or 0)

    said = answered(tmp_path / "t.agviz", program)
    assert "no leaf" in said.heading
    assert said.frame is not None
    assert said.source.startswith("weight = weight - 0.1 * weight.grad")


def test_a_loss_of_a_recorded_forward_says_what_made_it_nan(tmp_path: Path) -> None:
    scorer = nn.Linear(5, 1)

    def program() -> None:
        has_any = torch.tensor([1.0, 1.0, 0.0])
        scores = scorer(torch.randn(3, 6, 5)).squeeze(-1)
        scores = scores.masked_fill(has_any[:, None] == 0, -torch.inf)
        pooled = scores.logsumexp(1)  # cause
        ((pooled - 1) * has_any).square().mean().backward()

    said = answered(tmp_path / "t.agviz", program)
    assert "logsumexp of a row of -inf" in f"{said.heading} {said.paragraph}"
    assert "--check-forward" not in said.paragraph
    assert said.frame is not None
    assert is_cause(said.frame.line)


def test_a_softmax_of_what_overflowed_is_not_what_overflowed(tmp_path: Path) -> None:
    def program() -> None:
        q = (torch.randn(4, 64) * 300).half().requires_grad_()
        scores = q @ q.T  # cause
        scores.softmax(-1).float().square().mean().backward()

    said = answered(tmp_path / "t.agviz", program)
    assert said.heading.startswith("overflow in float16")
    assert said.frame is not None
    assert is_cause(said.frame.line)
