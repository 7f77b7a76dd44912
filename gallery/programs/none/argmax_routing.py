import torch
from torch import nn

torch.manual_seed(0)


class Top1(nn.Module):
    def __init__(self, width, experts):
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(experts))

    def forward(self, x):
        choice = self.router(x).argmax(-1)  # CAUSE
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            mask = choice == i
            out[mask] = expert(x[mask])
        return x + out


layer = Top1(8, 3)
optimizer = torch.optim.AdamW(layer.parameters())
for _ in range(2):
    optimizer.zero_grad()
    layer(torch.randn(24, 8)).square().mean().backward()
    optimizer.step()
print("router:", layer.router.weight.grad)
