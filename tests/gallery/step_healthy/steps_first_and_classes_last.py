"""Recurrent layers whose last step is taken along the right dimension."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Classifier(nn.Module):
    """Of series."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.second = nn.GRU(3, 8), nn.LSTM(8, 8, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, readings: Tensor) -> Tensor:
        states, _ = self.encoder(readings.transpose(0, 1))
        states = states.transpose(0, 1)
        deeper, _ = self.second(states)
        return self.head(deeper[:, -1] + states[:, -1]).log_softmax(1)


def program() -> None:
    model = Classifier()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        functional.nll_loss(model(torch.randn(9, 6, 3)), torch.randint(0, 2, (9,))).backward()
        optimizer.step()
