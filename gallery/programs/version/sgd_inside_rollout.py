import torch
from torch import nn

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
value = nn.Linear(4, 1)
optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters()], lr=1e-3)

state, logps = torch.randn(4), []
for t in range(8):
    logits = policy(state)
    logps.append(logits.log_softmax(-1)[0])
    state = 0.9 * state + 0.1 * torch.randn(4)
    if t % 4 == 3:
        fit = (value(state) - 1).square().mean() + policy(state).square().mean()
        optimizer.zero_grad()
        fit.backward()
        optimizer.step()  # CAUSE
loss = -torch.stack(logps).mean()
loss.backward()
