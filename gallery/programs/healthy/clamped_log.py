import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Linear(4, 5)
optimizer = torch.optim.Adam(policy.parameters())
mask = torch.tensor([True, True, True, False, False])
for _ in range(2):
    p = policy(torch.randn(8, 4)).masked_fill(~mask, -1e9).softmax(-1)
    entropy = -(p * p.clamp(min=1e-8).log()).sum(-1).mean()
    optimizer.zero_grad()
    (-entropy).backward()
    optimizer.step()
print("entropy", entropy.item())
