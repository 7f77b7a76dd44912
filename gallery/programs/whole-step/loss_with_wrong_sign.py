import torch
from torch import nn

torch.manual_seed(0)
flow = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
optimizer = torch.optim.Adam(flow.parameters(), lr=0.05)
x = torch.randn(128, 2)
history = []
for _ in range(60):
    z = flow(x)
    log_likelihood = -0.5 * (z - x).square().sum(1).mean()
    loss = log_likelihood  # CAUSE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(log_likelihood.item())
print("likelihood falls", history[-1] < 5 * history[0])
