import torch
from torch import nn

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
        self.register_buffer("alpha", torch.zeros(1))

    def forward(self, x):
        return x + self.alpha * self.net(x)  # CAUSE


model = nn.Sequential(Block(8), Block(8), nn.Linear(8, 2))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(torch.randn(8, 8)), torch.randint(2, (8,))).backward()
    optimizer.step()
print("branch grad", model[0].net[0].weight.grad.abs().max().item())
