"""The function for dropout is not given training, and goes on when the model is validated.

finding: always drops
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Churn(nn.Module):
    """Numbers and kinds to one score."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.hidden, self.out = nn.Embedding(7, 4), nn.Linear(10, 16), nn.Linear(16, 1)

    def forward(self, numbers: Tensor, kinds: Tensor) -> Tensor:
        x = F.relu(self.hidden(torch.cat([numbers, self.embed(kinds)], dim=1)))
        x = F.dropout(x, 0.5)  # cause
        return self.out(x).squeeze(1)


def program() -> None:
    model = Churn()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    numbers, kinds = torch.randn(32, 6), torch.randint(0, 7, (32,))
    for _ in range(4):
        model.train()
        loss = F.mse_loss(model(numbers, kinds), numbers.sum(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            model(numbers, kinds)
