"""What is advised fits what the program already does, by its text."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn

from tests.answers_support import answered, asked

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _leaps(clip: Callable[[nn.Module], object]) -> None:
    """A step of a recurrence that explodes, then a loss that is not finite."""
    rnn = nn.RNN(4, 32, nonlinearity="relu", batch_first=True)
    with torch.no_grad():
        rnn.get_parameter("weight_hh_l0").copy_(1.25 * torch.eye(32))
    optimizer = torch.optim.SGD(rnn.parameters(), lr=0.05)
    for _ in range(4):
        optimizer.zero_grad()
        clip(rnn)
        x = torch.randn(16, 30, 4)
        out, _ = rnn(x)
        nn.functional.mse_loss(out[:, -1].sum(1), x.sum((1, 2))).backward()
        optimizer.step()


def test_who_clips_in_vain_is_not_told_to_clip(tmp_path: Path) -> None:
    found = answered(
        tmp_path / "t.agviz",
        lambda: _leaps(lambda rnn: nn.utils.clip_grad_norm_(rnn.parameters(), 1.0)),
    )
    assert found.heading.startswith("a step of SGD")
    assert "clipped to 1: this one was not" in str(found)
    assert "or clip the gradients" not in str(found)


class _Towers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Linear(4, 8), nn.Linear(6, 8)

    @torch.no_grad()
    def encode(self, features: Tensor) -> Tensor:
        return torch.tanh(self.items(features))

    def called(self, features: Tensor) -> Tensor:
        return torch.tanh(self.items(features))

    def forward(self, history: Tensor, features: Tensor, *, decorated: bool) -> Tensor:
        if decorated:
            return torch.mm(self.users(history), self.encode(features).T)
        with torch.no_grad():
            items = self.called(features)
        return torch.mm(self.users(history), items.T)


@pytest.mark.parametrize("decorated", [True, False])
def test_a_decorator_that_turns_gradients_off_is_named(tmp_path: Path, *, decorated: bool) -> None:
    model = _Towers()

    def program() -> None:
        model(torch.ones(2, 4), torch.ones(2, 6), decorated=decorated).sum().backward()

    remedy = asked(tmp_path / "t.agviz", program)["items.weight"].remedy
    line = inspect.getsourcelines(_Towers.encode)[1]
    assert (f"@torch.no_grad() in line {line}:" in remedy) is decorated, remedy
