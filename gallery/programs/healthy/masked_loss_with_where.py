import torch
from torch import nn

torch.manual_seed(0)
rates = nn.Sequential(nn.Linear(4, 8), nn.Softplus(), nn.Linear(8, 3), nn.ReLU())
optimizer = torch.optim.Adam(rates.parameters(), lr=1e-3)
for step in range(3):
    x = torch.randn(16, 4)
    rate = rates(x)
    counts = torch.poisson(torch.ones(16, 3))
    safe = torch.where(rate > 0, rate, torch.ones_like(rate))
    log = torch.where(rate > 0, safe.log(), torch.zeros_like(rate))
    loss = (rate - counts * log).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("finite:", all(bool(p.grad.isfinite().all()) for p in rates.parameters()))
