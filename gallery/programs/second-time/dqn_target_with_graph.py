import random

import torch
from torch import nn

random.seed(0)
torch.manual_seed(0)
q_net = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(q_net.parameters())
memory = []
for _ in range(6):
    state = torch.randn(3)
    q = q_net(state).max()
    memory.append((q, torch.randn(())))  # CAUSE
for update in range(3):
    batch = random.sample(memory, 6)
    loss = torch.stack([(q - r) ** 2 for q, r in batch]).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
