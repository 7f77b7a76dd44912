import torch
from torch import nn

torch.manual_seed(0)


class Unrolled(nn.Module):
    def __init__(self, width, steps):
        super().__init__()
        self.cell = nn.GRUCell(3, width)
        self.width, self.steps = width, steps

    def forward(self, x):
        states = torch.zeros(self.steps + 1, x.shape[0], self.width)
        for t in range(self.steps):
            states[t + 1] = self.cell(x[:, t], states[t])  # CAUSE
        return states[1:]


model = Unrolled(8, 5)
optimizer = torch.optim.Adam(model.parameters())
loss = model(torch.randn(4, 5, 3)).square().mean()
loss.backward()
optimizer.step()
