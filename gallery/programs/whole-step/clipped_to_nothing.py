import torch
from torch import nn

torch.manual_seed(0)
CONFIG = {"lr": 0.1, "max_norm": 1e-8}
model = nn.Sequential(nn.Linear(5, 10), nn.GELU(), nn.Linear(10, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=CONFIG["lr"])
before = model[0].weight.detach().clone()
for _ in range(10):
    loss = nn.functional.cross_entropy(model(torch.randn(8, 5)), torch.randint(2, (8,)))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), CONFIG["max_norm"])  # CAUSE
    optimizer.step()
print("moved less than 1e-6:", bool((model[0].weight - before).abs().max() < 1e-6))
