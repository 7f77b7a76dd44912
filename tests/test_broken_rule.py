"""A rule that raises: what others found is kept, and ✓ is not said of what was not looked at."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import agviz
from agviz.analysis import verdict
from agviz.analysis.outcome import Outcome
from agviz.analysis.steps import reordering
from agviz.analysis.verdict import verdicts
from agviz.cli.main import main
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agviz.analysis.steps.finding import StepFinding
    from agviz.analysis.steps.run import RunSteps


def raising(run: RunSteps) -> Iterator[StepFinding]:
    yield from ()
    raise KeyError(f"no such thing\nin {type(run).__name__}")


def without_result(trace: Trace) -> None:
    raise AttributeError("no such thing")


def recorded(path: Path, *, is_cleared: bool) -> Path:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    x = torch.randn(32, 4)
    with agviz.trace(path=path):
        for _ in range(8):
            if is_cleared:
                optimizer.zero_grad()
            (model(x) - x[:, :1]).square().mean().backward()
            optimizer.step()
    return path


def test_what_other_rules_found_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reordering, "reordered", raising)
    with Trace.open(recorded(tmp_path / "t.agviz", is_cleared=False)) as trace:
        first, *_, last = verdicts(trace)
    assert first.outcome is Outcome.FOUND
    assert "zero_grad" in first.paragraph
    assert last.outcome is Outcome.CANT_TELL
    assert last.heading == 'agviz itself failed in one of its rules, "raising"'
    assert last.paragraph.startswith("It raised KeyError at test_broken_rule.py:")
    assert len(last.paragraph.split()) <= 70


@pytest.mark.parametrize("is_of_steps", [True, False])
def test_nothing_unusual_is_not_said(
    is_of_steps: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = recorded(tmp_path / "t.agviz", is_cleared=True)
    assert main(["explain", str(path)]) == 0
    assert capsys.readouterr().out.startswith("✓")
    if is_of_steps:
        monkeypatch.setattr(reordering, "reordered", raising)
    else:
        monkeypatch.setattr(verdict, "_MAY_BE_MEANT", (without_result, *verdict._MAY_BE_MEANT))
    assert main(["explain", str(path)]) == 2
    out = capsys.readouterr().out
    assert out.startswith("? agviz itself failed in one of its rules")
    assert "agviz issue" in out
    assert main(["explain", "--json", str(path)]) == 2
    assert json.loads(capsys.readouterr().out)
