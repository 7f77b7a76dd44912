"""Advice that fits what is known of a gradient, and each fault told once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

from agviz.analysis.causes import Cause
from agviz.analysis.outcome import Outcome
from agviz.analysis.repeated_calls import RepeatedCalls
from agviz.analysis.saturation.finding import Saturation
from agviz.analysis.verdict import verdicts
from agviz.cli.main import main
from agviz.traces.reader import Trace
from tests.answers_support import answered, asked

if TYPE_CHECKING:
    from collections.abc import Callable

    from agviz.analysis.gradients import GradientRow


def test_a_dropout_that_drops_everything_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Dropout(1.0), nn.Linear(6, 2))
    rows = asked(tmp_path / "t.agviz", lambda: model(torch.randn(5, 4)).square().sum().backward())
    assert {name for name, row in rows.items() if row.cause is Cause.DROPPED} == {
        "0.weight",
        "0.bias",
        "2.weight",
    }
    capsys.readouterr()
    assert main(["why", str(tmp_path / "t.agviz")]) == 1
    said = capsys.readouterr().out
    assert said.startswith("✗ 3 of 4 parameters have a gradient of zeros, 0.* … 2.weight: dropout(")
    assert said.count("✗") == 1


def test_from_the_third_fault_on_the_table_tells_reason_and_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    parts = nn.ModuleDict({name: nn.Linear(2, 2) for name in "abcde"})

    def program() -> None:
        x = torch.randn(3, 2)
        cuts: dict[str, Callable[[Tensor], Tensor]] = {
            "a": Tensor.detach,
            "b": Tensor.round,
            "c": lambda y: torch.tensor(y.tolist()),
            "d": lambda y: (y > 0).float(),
        }
        outputs = [cut(parts[name](x)).sum() for name, cut in cuts.items()]
        (torch.stack(outputs).sum() + parts["e"](x).sum()).backward()

    rows = asked(tmp_path / "t.agviz", program)
    faults = {(row.reason, row.line) for row in rows.values() if not row.is_fine}
    assert len(faults) == 4
    capsys.readouterr()
    assert main(["why", str(tmp_path / "t.agviz")]) == 1
    said, _, table = capsys.readouterr().out.partition("───")
    assert said.count("✗") == 3, "how many there are, and two of them"
    others = [(reason, line) for reason, line in faults if reason not in said]
    assert len(others) == 2
    assert all(", at ".join(map(str, other)) in " ".join(table.split()) for other in others)


@pytest.mark.parametrize(("scale", "gradient"), [(1e8, "zero"), (300, "faint")])
def test_a_softmax_that_is_one_hot_has_too_large_logits(
    scale: float, gradient: str, tmp_path: Path
) -> None:
    layer = nn.Linear(4, 6)

    def program() -> None:
        weights = (layer(torch.randn(5, 4)) * scale).softmax(-1)
        (weights @ torch.arange(6.0)).sum().backward()

    row = asked(tmp_path / "t.agviz", program)["weight"]
    assert row.gradient == gradient
    assert "one-hot" in row.reason or "saturated" in row.reason
    assert row.remedy.startswith("Its logits are too large")


def test_a_softmax_of_one_entry_has_not(tmp_path: Path) -> None:
    row = _of_softmax(tmp_path, 1, lambda weights: weights.square().sum())
    assert "over one entry gives 1" in row.reason
    assert row.remedy.startswith("Take it over several entries")


def test_a_sum_of_whole_rows_of_softmax_is_constant(tmp_path: Path) -> None:
    row = _of_softmax(tmp_path, 6, lambda weights: weights.sum(-1).mean())
    assert row.gradient == "faint"
    assert row.remedy.startswith("Let the loss take each entry by itself")


def _of_softmax(tmp_path: Path, entries: int, loss: Callable[[Tensor], Tensor]) -> GradientRow:
    layer = nn.Linear(4, entries)

    def program() -> None:
        loss(layer(torch.randn(5, 4)).softmax(-1)).backward()

    return asked(tmp_path / "t.agviz", program)["weight"]


def test_what_a_hook_returns_is_the_line(tmp_path: Path) -> None:
    layer = nn.Linear(2, 2)

    def drop_all_of_it(gradient: Tensor) -> Tensor:
        scaled = gradient * 0
        return scaled + 0  # the line

    layer.weight.register_hook(drop_all_of_it)
    row = asked(tmp_path / "t.agviz", lambda: layer(torch.ones(1, 2)).sum().backward())["weight"]
    assert row.cause is Cause.HOOK
    assert row.frame is not None
    assert Path(__file__).read_text().splitlines()[row.frame.line - 1].endswith("# the line")


def test_a_graph_that_is_gone_through_again_is_to_be_made_anew(tmp_path: Path) -> None:
    def program() -> None:
        loss = torch.ones(3, requires_grad=True).exp().sum()
        for _ in range(2):
            loss.backward()

    found = answered(tmp_path / "t.agviz", program, "second time")
    assert "compute the forward anew before each call" in found.paragraph


def test_saturation_comes_before_what_is_only_slow(tmp_path: Path) -> None:
    gate = nn.Linear(8, 6)
    experts = nn.ModuleList(nn.Linear(8, 1) for _ in range(6))

    def program() -> None:
        for _ in range(4):
            x = torch.randn(64, 8) * 1e3
            outs = torch.cat([expert(x.tanh().sin()) for expert in experts], -1)
            (gate(x).softmax(-1) * outs).sum(-1).square().mean().backward()

    answered(tmp_path / "t.agviz", program)
    with Trace.open(tmp_path / "t.agviz") as trace:
        first, second = verdicts(trace)
    assert isinstance(first.basis, Saturation)
    assert isinstance(second.basis, RepeatedCalls)
    assert {first.outcome, second.outcome} == {Outcome.FOUND}
    assert second.frame is not None
    assert not second.paragraph
