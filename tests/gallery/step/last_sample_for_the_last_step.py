"""Of a recurrent layer that takes steps first the last sample is taken.

finding: axis
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Classifier(nn.Module):
    """Of series."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.GRU(input_size=3, hidden_size=8, num_layers=2)
        self.head = nn.Linear(8, 2)

    def forward(self, readings: Tensor) -> Tensor:
        states, _ = self.encoder(readings)
        out: Tensor = self.head(states[:, -1, :])  # cause
        return out


def program() -> None:
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        functional.cross_entropy(model(torch.randn(9, 6, 3)), torch.randint(0, 2, (9,))).backward()
        optimizer.step()
