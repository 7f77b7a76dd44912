import torch
from torch import nn
from torch.distributions import Normal

torch.manual_seed(0)
policy = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 1))
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-4)
states = torch.randn(10, 3)
actions = torch.randn(10, 1)
actions[4] = 14.0  # clipped to the limits of the motor when it was recorded
old = Normal(torch.zeros(10, 1), 1.0).log_prob(actions)
advantage = torch.randn(10, 1)

with torch.no_grad():
    policy[2].bias.fill_(13.9)
new = Normal(policy(states), 1.0).log_prob(actions)
ratio = torch.exp(new - old)  # CAUSE
clipped = ratio.clamp(0.8, 1.2)
loss = -torch.min(ratio * advantage, clipped * advantage).mean() + ratio.square().mean() * 1e-3
optimizer.zero_grad()
loss.backward()
print("policy grad finite", all(bool(p.grad.isfinite().all()) for p in policy.parameters()))
