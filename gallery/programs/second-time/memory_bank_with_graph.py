import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
bank = []
for step in range(3):
    query, key = (nn.functional.normalize(encoder(torch.randn(6, 8)), dim=-1) for _ in range(2))
    near = (query * key).sum(-1, keepdim=True)
    far = query @ torch.cat(bank).T if bank else query.new_zeros(6, 1)
    loss = nn.functional.cross_entropy(torch.cat([near, far], 1) / 0.1, torch.zeros(6).long())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    bank = [*bank, key][-2:]  # CAUSE
