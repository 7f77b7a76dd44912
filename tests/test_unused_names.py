"""Tensors that nothing reads: said and not judged, and only where they may have been meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import agviz
from agviz.analysis.outcome import Outcome
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agviz.analysis.verdict import Verdict


class Pooling(nn.Module):
    """Takes a mask, and the mean of all words."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, words: Tensor, there: Tensor) -> Tensor:
        pooled: Tensor = self.inner(words).mean(1)
        return pooled


class Weighing(Pooling):
    """Takes the mean of the words that are there."""

    def forward(self, words: Tensor, there: Tensor, _unneeded: None = None) -> Tensor:
        weighed: Tensor = (self.inner(words) * there[..., None]).sum(1) / there.sum(1, keepdim=True)
        return weighed


def mask_not_applied(model: nn.Module) -> Tensor:
    words, labels = torch.randn(6, 5, 4), torch.randint(0, 3, (6,))
    return functional.cross_entropy(model(words, torch.ones(6, 5)), labels)


def weights_not_applied(model: nn.Module) -> Tensor:
    words, labels = torch.randn(6, 5, 4), torch.randint(0, 3, (6,))
    weights = torch.rand(6) + 0.5  # noqa: F841
    return functional.cross_entropy(model(words, torch.ones(6, 5)), labels)


def all_read(model: nn.Module) -> Tensor:
    words, labels = torch.randn(6, 5, 4), torch.randint(0, 3, (6,))
    weights = torch.rand(6) + 0.5
    losses = functional.cross_entropy(model(words, torch.ones(6, 5)), labels, reduction="none")
    right = (losses.detach() < 1).float().mean().item()  # noqa: F841
    _, length, size = words.shape  # noqa: RUF059
    return (losses * weights).mean()


def _verdict(model: nn.Module, loss: Callable[[nn.Module], Tensor], path: Path) -> Verdict:
    torch.manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    with agviz.trace(path=path):
        for _ in range(4):
            optimizer.zero_grad()
            loss(model).backward()
            optimizer.step()
    with Trace.open(path) as trace:
        return verdicts(trace)[0]


@pytest.mark.parametrize(
    ("model", "loss", "heading", "line"),
    [
        (Pooling, mask_not_applied, "forward is given there", "def forward"),
        (Weighing, weights_not_applied, "weights is computed, and nothing", "weights = torch"),
    ],
)
def test_what_nothing_reads_is_shown(
    model: type[nn.Module],
    loss: Callable[[nn.Module], Tensor],
    heading: str,
    line: str,
    tmp_path: Path,
) -> None:
    found = _verdict(model(), loss, tmp_path / "t.agviz")
    assert found.outcome is Outcome.CANT_TELL
    assert found.heading.startswith(heading)
    assert found.frame is not None
    assert found.frame.source.startswith(line)


def test_what_is_read_or_only_shown_is_not(tmp_path: Path) -> None:
    assert _verdict(Weighing(), all_read, tmp_path / "t.agviz").outcome is Outcome.NOTHING_UNUSUAL
