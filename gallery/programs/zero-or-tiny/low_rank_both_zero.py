import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)


class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(8, 8)
        self.base.requires_grad_(False)
        self.down = nn.Parameter(torch.empty(2, 8))
        self.up = nn.Parameter(torch.zeros(8, 2))
        nn.init.zeros_(self.down)  # CAUSE

    def forward(self, x):
        return self.base(x) + x @ self.down.T @ self.up.T


model = Adapted()
optimizer = torch.optim.Adam([model.down, model.up], lr=1e-2)
x, y = torch.randn(32, 8), torch.randn(32, 8)
for step in range(10):
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
print("grads", model.down.grad.abs().max(), model.up.grad.abs().max())
