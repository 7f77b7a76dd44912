"""Views that move sizes and no numbers are named; those that merge and split are not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

import agviz
from agviz.analysis.mixed_axes import mixed_axes, moved
from agviz.analysis.verdict import verdicts
from agviz.traces.reader import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from agviz.analysis.steps.finding import StepFinding


def directions(x: Tensor) -> Tensor:
    """The last state of both directions, as in many a question about LSTM."""
    lstm = nn.LSTM(12, 50, batch_first=True, bidirectional=True)
    joined: Tensor = lstm(x)[1][0].view(-1, 100)
    return joined


def shifted(x: Tensor) -> Tensor:
    """Scores of relative positions, as Transformer-XL shifts them."""
    scores = x @ torch.ones(12, 10)
    padded = torch.cat([torch.zeros(8, 10, 1), scores], dim=2)
    return padded.view(8, 11, 10)[:, 1:]


def shuffled(x: Tensor) -> Tensor:
    """A shuffle of channels."""
    return x.view(8, 2, 5, 12).transpose(1, 2).reshape(8, 10, 12)


def patches(x: Tensor) -> Tensor:
    """Patches of images of one channel."""
    cut = x.view(8, 1, 2, 5, 4, 3).permute(0, 2, 4, 3, 5, 1)
    return cut.reshape(8, 8, 15)


def attended(x: Tensor) -> Tensor:
    """Torch's own layer, in training as it comes."""
    layer = nn.TransformerEncoderLayer(12, 3, 24, batch_first=True)
    out: Tensor = layer(x)
    return out


def attended_by_samples(x: Tensor) -> Tensor:
    """The same with as many samples as a head has numbers: torch joins samples and heads."""
    layer = nn.MultiheadAttention(24, 3, batch_first=True)
    wide = nn.functional.linear(x, torch.randn(24, 12))
    out: Tensor = layer(wide, wide, wide)[0]
    return out


WRONG: dict[str, tuple[list[int], list[int], Callable[[Tensor], Tensor]]] = {
    "heads": ([8, 10, 12], [8, 4, 10, 3], lambda x: x.view(8, 4, 10, 3)),
    "heads in the batch": ([8, 10, 12], [32, 10, 3], lambda x: x.reshape(32, 10, 3)),
    "channels last": ([8, 10, 12], [8, 12, 10], lambda x: x.view(8, 12, 10)),
    "not contiguous": ([8, 12, 10], [8, 10, 12], lambda x: x.transpose(1, 2).reshape(8, 10, 12)),
    "directions": ([2, 8, 50], [8, 100], directions),
}
RIGHT: dict[str, Callable[[Tensor], Tensor]] = {
    "flattened": lambda x: x.view(8, 120),
    "merged": lambda x: x.view(80, 12),
    "split": lambda x: x.view(8, 10, 4, 3).transpose(1, 2),
    "permuted": lambda x: x.permute(0, 2, 1).reshape(8, 12, 10) * 2,
    "cut anew": lambda x: x.view(8, 15, 8),
    "few of each": lambda x: x.view(8, 10, 4, 3)[..., :2, :].reshape(8, 10, 3, 2),
    "as many heads as positions": lambda x: x[:, :4].transpose(0, 1).reshape(8, 48),
    "neighbours joined": lambda x: x.view(80, 12)[:48].view(12, 48),
    "shifted": shifted,
    "shuffled": shuffled,
    "patches": patches,
    "attended": attended,
    "attended by samples": attended_by_samples,
}


def found(make: Callable[[Tensor], Tensor], file: Path) -> StepFinding | None:
    """What is found in a pass through what a function makes of a product."""
    torch.manual_seed(0)
    x = torch.randn(8, 10, 12, requires_grad=True)
    with agviz.trace(path=file):
        make(x * 1.5).square().sum().backward()
    with Trace.open(file) as trace:
        answer = mixed_axes(trace)
        named = [verdict.basis for verdict in verdicts(trace)]
        assert answer is None or answer in named
    return answer


@pytest.mark.parametrize("name", WRONG)
def test_a_dimension_that_only_sizes_moved_is_named(name: str, tmp_path: Path) -> None:
    """Both shapes are named, and the line."""
    before, after, make = WRONG[name]
    answer = found(make, tmp_path / "t.agviz")
    assert answer is not None
    assert answer.heading == f"viewing {before} as {after} moves a dimension, but no data"
    assert answer.frame is not None
    assert answer.frame.file.endswith("test_mixed_axes.py")


@pytest.mark.parametrize("name", RIGHT)
def test_what_merges_splits_or_transposes_is_not_named(name: str, tmp_path: Path) -> None:
    """Nor what shifts rows on purpose."""
    assert found(RIGHT[name], tmp_path / "t.agviz") is None


@pytest.mark.parametrize(
    ("before", "after", "size"),
    [
        ((64, 12, 6, 6), (64, 36, 12), 12),
        ((20, 30), (30, 20), 30),
        ((16, 64), (4, 16, 16), None),
        ((120,), (20, 6), None),
        ((2, 1, 5, 7), (2, 5, 7), None),
        ((3, 2), (2, 3), None),
        ((), (1,), None),
        ((5,), (1, 1, 5), None),
        ((1, 6, 5), (6, 1, 5), None),
        ((3, 0), (0, 3), None),
    ],
)
def test_sizes_alone_decide(
    before: tuple[int, ...], after: tuple[int, ...], size: int | None
) -> None:
    """One that is there twice, or small, decides nothing."""
    assert moved(before, after) == size
