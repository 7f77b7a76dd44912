import torch
from torch import nn

torch.manual_seed(0)


class Recolour(nn.Module):
    """Trains an offset of each channel."""

    def __init__(self):
        super().__init__()
        self.offset = nn.Parameter(torch.zeros(1, 3, 1, 1))
        self.norm = nn.BatchNorm2d(3, affine=False)
        self.out = nn.Conv2d(3, 1, 1).requires_grad_(False)

    def forward(self, x):
        return self.out(self.norm(x + self.offset))  # CAUSE


model = Recolour()
optimizer = torch.optim.SGD([model.offset], lr=0.1)
x = torch.rand(4, 3, 6, 6)
for _ in range(5):
    loss = (model(x) - 0.5).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"moved {model.offset.abs().max().item():.4f}")
