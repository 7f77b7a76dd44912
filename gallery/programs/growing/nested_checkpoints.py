import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
runs = 0


class Level(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.mix = nn.Linear(4, 4)

    def forward(self, x):
        return self.mix(checkpoint(self.inner, x, use_reentrant=True)).tanh()  # CAUSE


class Core(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        global runs
        runs += 1
        return self.linear(x)


model = Core()
for _ in range(8):
    model = Level(model)
x = torch.randn(3, 4, requires_grad=True)
model(x).sum().backward()
print("innermost ran", runs, "times")
