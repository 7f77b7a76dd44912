import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
model = nn.Linear(6, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(4):
    optimizer.zero_grad()
    for micro in range(3):
        x, y = torch.randn(8, 6), torch.randint(3, (8,))
        mask = torch.rand(8) < (0.0 if (step, micro) == (1, 0) else 0.8)
        loss = (F.cross_entropy(model(x), y, reduction="none") * mask).sum()
        loss.backward()
        for p in model.parameters():
            p.grad /= mask.sum()  # CAUSE
    optimizer.step()
print(model.weight.isnan().any())
