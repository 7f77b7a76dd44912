import torch
from torch import nn

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        self.out = torch.tanh(self.linear(x))  # CAUSE
        return self.out


model = nn.Sequential(*(Block(48) for _ in range(6)), nn.Linear(48, 3))
with torch.no_grad():
    model[3].linear.weight.mul_(300)  # CAUSE
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x, y = torch.randn(64, 48), torch.randint(3, (64,))
for _ in range(3):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
print(
    "at the rim", [round((block.out.abs() > 0.99).float().mean().item(), 1) for block in model[:6]]
)
