import torch
from torch import nn

torch.manual_seed(0)
rates = nn.Parameter(torch.tensor([1e-9, 3e-9], dtype=torch.float64))
optimizer = torch.optim.SGD([rates], lr=1.0)
t = torch.linspace(0, 1, 20, dtype=torch.float64)
target = 5e-9 * t
losses = []
for _ in range(5):
    loss = (rates[0] * t + rates[1] * t**2 - target).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print("loss fell", losses[-1] < losses[0])
