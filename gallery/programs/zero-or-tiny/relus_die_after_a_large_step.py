import torch
from torch import nn

torch.manual_seed(0)


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 32)
        self.second = nn.Linear(32, 32)
        self.out = nn.Linear(32, 1)

    def forward(self, x):
        x = torch.relu(self.first(x))
        x = torch.relu(self.second(x))  # CAUSE
        self.alive = (x > 0).float().mean()
        return self.out(x)


model = Regressor()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02)  # CAUSE
for step in range(12):
    x = torch.rand(64, 8)
    y = x.sum(1, keepdim=True)
    if step == 5:
        y = y - 4000.0
    loss = (model(x) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"alive {model.alive.item():.3f}")
