"""Fine tuning: the first two blocks of a deep residual MLP are frozen by their names."""

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.fc = nn.Linear(width, width)

    def forward(self, x):
        return x + F.gelu(self.fc(self.norm(x)))


class Net(nn.Module):
    def __init__(self, width=24, depth=12):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 5)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x)


model = Net()
frozen = ("blocks.0", "blocks.1")
for name, parameter in model.named_parameters():
    if name.startswith(frozen):
        parameter.requires_grad = False  # CAUSE

trainable = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trainable, lr=1e-3)
x, y = torch.randn(32, 24), torch.randint(0, 5, (32,))
for step in range(3):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("last block grad:", model.blocks[11].fc.weight.grad)
