import torch
from torch import nn

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(x)) - 1.5))


model = nn.Sequential(*(Block(24) for _ in range(4)), nn.Linear(24, 2))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
x = torch.randn(64, 24)
y = (x.square().sum(1) > 24).long()
for step in range(12):
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"grad {model[0].up.weight.grad.norm():.4f}")
