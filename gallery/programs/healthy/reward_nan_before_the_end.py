import torch
from torch import nn

torch.manual_seed(0)
q = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(q.parameters())
rewards = torch.full((100,), float("nan"))
states = torch.zeros(101, 3)
for t in range(40):
    states[t + 1] = torch.randn(3)
    rewards[t] = torch.randn(())
    if t > 8:
        at = torch.randint(t, (8,))
        with torch.no_grad():
            target = rewards[at] + 0.9 * q(states[at + 1]).max(-1).values
        loss = nn.functional.smooth_l1_loss(q(states[at])[:, 0], target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print("finite", all(bool(p.isfinite().all()) for p in q.parameters()))
