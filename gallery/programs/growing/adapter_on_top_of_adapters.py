import torch
from torch import nn
import torch.nn.functional as F


class LoRA(nn.Module):
    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base
        self.a = nn.Parameter(torch.randn(rank, 24) * 0.1)
        self.b = nn.Parameter(torch.zeros(24, rank))

    def forward(self, x):
        return self.base(x) + x @ self.a.T @ self.b.T


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(24)
        self.proj = nn.Linear(24, 24)

    def forward(self, x):
        return x + torch.relu(self.proj(self.norm(x)))


def add_adapters(model):
    for block in model.blocks:
        block.proj = LoRA(block.proj)  # CAUSE


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(24, 5)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def local_update(model, x, y):
    add_adapters(model)  # CAUSE
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


torch.manual_seed(0)
model = Model()
x, y = torch.randn(32, 24), torch.randint(0, 5, (32,))
for round in range(8):
    loss = local_update(model, x, y)
    print(f"round {round} loss {loss:.3f} tensors {len(list(model.parameters()))}")
print("adapters per block:", sum(isinstance(m, LoRA) for m in model.blocks[0].modules()))
