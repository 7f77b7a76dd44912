import torch
from torch import nn

torch.manual_seed(0)
tower = nn.Sequential(nn.Linear(10, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.Adam(tower.parameters())
MARGIN = -3.0

for _ in range(2):
    anchor, positive, negative = (
        nn.functional.normalize(tower(torch.randn(12, 10)), dim=-1) for _ in range(3)
    )
    near = (anchor * positive).sum(-1)
    far = (anchor * negative).sum(-1)
    loss = torch.relu(far - near + MARGIN).mean()  # CAUSE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("grads", [p.grad.abs().max().item() for p in tower.parameters()])
