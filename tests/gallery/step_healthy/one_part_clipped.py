"""Only the recurrent part is clipped."""

import torch
from torch import nn


def program() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.out = nn.Linear(16, 1)
            self.rnn = nn.GRU(4, 16, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.rnn(x)[0][:, -1]).squeeze(1)

    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _step in range(40):
        x = torch.randn(32, 12, 4)
        loss = (model(x) - 20 * x[:, -1].sum(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.rnn.parameters(), 0.5)
        optimizer.step()
