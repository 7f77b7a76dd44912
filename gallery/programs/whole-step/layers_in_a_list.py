import torch
from torch import nn

torch.manual_seed(0)


class Stack(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.blocks = [nn.Linear(6, 6) for _ in range(depth)]  # CAUSE
        self.head = nn.Linear(6, 2)

    def forward(self, x):
        for block in self.blocks:
            x = x + block(x).relu()
        return self.head(x)


model = Stack(3)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)  # CAUSE
before = model.blocks[0].weight.detach().clone()
for _ in range(4):
    loss = nn.functional.cross_entropy(model(torch.randn(16, 6)), torch.randint(2, (16,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
block = model.blocks[0].weight
print("block has grad", block.grad is not None, "moved", not torch.equal(block, before))
