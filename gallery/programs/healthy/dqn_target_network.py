import copy

import torch
from torch import nn

torch.manual_seed(0)
online = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
target = copy.deepcopy(online)
optimizer = torch.optim.Adam(online.parameters())
updates = 0
for step in range(8):
    s, s2 = torch.randn(2, 16, 4).unbind(0)
    a, r = torch.randint(2, (16, 1)), torch.randn(16)
    with torch.no_grad():
        goal = r + 0.99 * target(s2).max(-1).values
    loss = nn.functional.smooth_l1_loss(online(s).gather(1, a).squeeze(1), goal)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 2:
        target.load_state_dict(online.state_dict())
        updates += 1
print("updates", updates)
