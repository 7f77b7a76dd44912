"""Statements that only rename a parameter are told; loops that use the new value are not."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from agviz.analysis.steps.asking import found_in_steps
from agviz.analysis.steps.run import RunSteps
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace
from tests import python_process

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import torch
from torch import nn

{functions}

torch.manual_seed(0)
model, other = nn.Linear(4, 2), nn.Linear(4, 2).requires_grad_(False)
for _ in range(4):
    x = torch.randn(8, 4)
    model.zero_grad()
    (model(x) - other(x)).square().mean().backward()
    {calls}
"""
"""A training that calls functions with what is told in them or not."""
TOLD = (
    ["for p in model.parameters():", "    p = p - rate * p.grad"],
    ["for a, b in zip(other.parameters(), model.parameters()):", "    a = b.clone()"],
    ["for n, p in model.named_parameters():", "    if n:", "        p = torch.clamp(p, -1, 1)"],
    ["for p in [*model.parameters()]:", "    p = p.double()"],
    ["for p in model.parameters():", "    p, q = p, 1", "    p = p * 2"],
)
LEFT_ALONE = (
    ["for p in model.parameters():", "    p = p.data", "    p.mul_(0.9)"],
    ["for p in model.parameters():", "    p = p.data; p.mul_(0.9)"],
    ["for p in model.parameters():", "    with torch.no_grad():", "        p -= rate * p.grad"],
    ["for p in model.parameters():", "    p = nn.init.normal_(p)"],
    ["n = 0", "for p in model.parameters():", "    p = p.grad / 2", "    n += p.sum()"],
    ["for p in model.parameters():", "    p = p * 2", "return p"],
    ["for p in model.parameters():", "    p = p.float()"],
    ["for p in other.parameters():", "    p = p.clone()"],
    ["for p in model.parameters():", "    f = lambda: p", "    p = p * 2"],
    ["for p in model.parameters():", "    for _ in range(2):", "        p = p / p.norm()"],
    ["for b in model.buffers():", "    b = b * 2"],
    ["def unused():", "    for p in model.parameters():", "        p = p * 2"],
    ["for p in model.parameters():", "    p = None"],
)


def recorded(tmp_path: Path, *bodies: list[str]) -> Path:
    names = [f"change_{number}" for number in range(len(bodies))]
    functions = [
        "\n    ".join([f"def {name}(model, other, rate=0.1):", *body])
        for name, body in zip(names, bodies, strict=True)
    ]
    calls = "; ".join(f"{name}(model, other)" for name in names)
    text = PROGRAM.format(functions="\n\n".join(functions), calls=calls)
    (tmp_path / "train.py").write_text(text, encoding="utf-8")
    agviz = [sys.executable, "-m", "agviz", "run", "-o", "t.agviz", "train.py"]
    python_process.run(agviz, cwd=tmp_path, check=True)
    return tmp_path / "t.agviz"


@pytest.mark.slow_but_one_in(3)
@pytest.mark.parametrize("body", TOLD, ids=lambda body: body[-1].strip())
def test_a_name_that_nothing_reads_is_told(tmp_path: Path, body: list[str]) -> None:
    with Trace.open(recorded(tmp_path, body)) as trace:
        found = verdicts(trace)[0]
    assert found.is_found
    assert found.source == body[-1].strip()
    assert len(found.paragraph.split()) <= 70


def test_what_is_used_afterwards_is_not(tmp_path: Path) -> None:
    with Trace.open(recorded(tmp_path, *LEFT_ALONE)) as trace:
        assert not [
            each
            for each in found_in_steps(trace, RunSteps(trace.beginning))
            if each.kind == "rebound"
        ]
