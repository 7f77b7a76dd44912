import torch
from torch import nn

torch.manual_seed(0)


class Rollout(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(6, 16)
        self.cell = nn.RNNCell(3, 16)
        self.out = nn.Linear(16, 1)

    def forward(self, start, controls):
        h = self.encoder(start)
        for t in range(controls.shape[1]):
            h = self.cell(controls[:, t], h)  # CAUSE
        return self.out(h)


model = Rollout()
loss = (model(torch.randn(4, 6), torch.randn(4, 200, 3)) - 1).square().mean()
loss.backward()
print(
    "encoder", model.encoder.weight.grad.norm().item(), "out", model.out.weight.grad.norm().item()
)
