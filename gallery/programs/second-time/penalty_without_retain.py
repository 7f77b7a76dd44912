import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Sequential(nn.Linear(5, 16), nn.Softplus(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(critic.parameters())
x = torch.randn(8, 5, requires_grad=True)
score = critic(x)
(slope,) = torch.autograd.grad(score.sum(), x)  # CAUSE
penalty = (slope.norm(dim=1) - 1).square().mean()
loss = score.mean() + 10 * penalty
optimizer.zero_grad()
loss.backward()
optimizer.step()
