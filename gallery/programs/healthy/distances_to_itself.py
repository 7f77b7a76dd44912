import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Linear(6, 3)
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.05)
for step in range(5):
    z = nn.functional.normalize(encoder(torch.randn(9, 6)), dim=-1)
    loss = torch.cdist(z, z).neg().exp().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("finite:", encoder.weight.grad.isfinite().all().item())
