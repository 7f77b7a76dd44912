"""A triangle of the numbers 1 and 0 is given for a mask, and is added to the scores.

finding: mask added
"""

import torch
from torch import Tensor, nn


class Forecast(nn.Module):
    """Reads the loads of a grid."""

    def __init__(self) -> None:
        super().__init__()
        self.lift = nn.Linear(3, 8)
        self.look = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 1)

    def forward(self, loads: Tensor) -> Tensor:
        h = self.lift(loads)
        past = torch.tril(torch.ones(h.size(1), h.size(1)))
        seen, _ = self.look(h, h, h, attn_mask=past, need_weights=False)  # cause
        out: Tensor = self.head(h + seen)
        return out


def program() -> nn.Module:
    model, loads = Forecast(), torch.randn(64, 10, 3)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for batch in loads.split(8):
        loss = nn.functional.mse_loss(model(batch[:, :-1]), batch[:, 1:, :1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model
