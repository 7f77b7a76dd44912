"""Writes past autograd to what goes on into a loss: `agviz check` says what gradients lack."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.test_cli_check import check

if TYPE_CHECKING:
    from pathlib import Path

PROGRAM = """
import torch
torch.manual_seed(0)
net, head = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.01)
for _ in range(3):
    optimizer.zero_grad()
    h = net(torch.randn(5, 4))
    {write}
    head(h).square().mean().backward()
    optimizer.step()
"""


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize(
    "write",
    [
        "h.data.div_(h.data.norm(dim=1, keepdim=True))",
        pytest.param("h.detach().mul_(2)", marks=pytest.mark.slow),
        pytest.param("h.data *= 2", marks=pytest.mark.slow),
        "with torch.no_grad(): h.exp_()",
    ],
)
def test_what_multiplies_or_bends(write: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM.format(write=write))
    ours = check("train.py", cwd=tmp_path)
    assert "in place is not recorded, and its derivative is left out" in ours.stdout, ours.stdout
    assert "train.py:9" in ours.stdout


@pytest.mark.slow_but_one_in(2)
@pytest.mark.parametrize(
    "write",
    [
        "h.data.add_(0.1 * torch.randn(5, 8))",
        "h.data.round_()",
        pytest.param("h = torch.nn.functional.relu(h, inplace=True)", marks=pytest.mark.slow),
        pytest.param("net.weight.data.mul_(0.99)", marks=pytest.mark.slow),
        pytest.param("last = h.detach().clone(); last.mul_(2)", marks=pytest.mark.slow),
        pytest.param("h.mul_(2)", marks=pytest.mark.slow),
    ],
)
def test_what_is_right_or_meant(write: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM.format(write=write))
    ours = check("train.py", cwd=tmp_path)
    assert "is not recorded" not in ours.stdout, ours.stdout
