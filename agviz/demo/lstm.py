"""An LSTM that predicts how a noisy wave goes on."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 # torch's own spelling

from agviz.demo.subject import PaddedNorm, Subject

TIME = 12
BATCH = 64
WIDTH = 64


def waves(step: int) -> tuple[Tensor, Tensor]:
    """Sine waves of shape (batch, time, 1), and the same one moment later."""
    generator = torch.Generator().manual_seed(step)
    frequency = 0.3 + torch.rand((BATCH, 1), generator=generator)
    phase = torch.rand((BATCH, 1), generator=generator) * 6.3
    wave = (frequency * torch.arange(TIME + 1) + phase).sin().unsqueeze(-1)
    noise = torch.randn(wave.shape, generator=generator) * 0.05
    return (wave + noise)[:, :-1], wave[:, 1:]


class Recurrent(nn.Module):
    """One LSTM layer, unrolled here: torch's own ``nn.LSTM`` is a single node on a CPU."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(features, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Hidden states of shape (batch, time, width) for ``x``, (batch, time, features)."""
        state: tuple[Tensor, Tensor] | None = None
        hidden = []
        for moment in x.unbind(1):
            state = self.cell(moment, state)
            hidden.append(state[0])
        return torch.stack(hidden, dim=1)


def build(*, plant_nan: bool = False) -> Subject:
    """The LSTM and its waves."""
    planted = PaddedNorm() if plant_nan else None
    parts: dict[str, nn.Module] = {"lower": Recurrent(1)}
    if planted is not None:
        parts["planted"] = planted
    parts |= {"upper": Recurrent(WIDTH), "head": nn.Linear(WIDTH, 1)}
    lower, *rest = parts.values()
    return Subject(
        title="two-layer LSTM on noisy waves",
        model=nn.Sequential(OrderedDict(parts)),
        batches=waves,
        loss=F.mse_loss,
        halves=([lower], rest),
        planted=planted,
        steps=200,
        learning_rate=3e-3,
    )
