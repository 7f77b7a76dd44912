import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)
actor, critic = nn.Linear(4, 2), nn.Linear(4, 1)
optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters()], lr=3e-3)
buffer = []
for _ in range(12):
    state = torch.randn(4)
    policy = Categorical(logits=actor(state))
    action = policy.sample()
    buffer.append((state, policy.log_prob(action).detach(), torch.randn(())))  # CAUSE

states, logps, returns = map(torch.stack, zip(*buffer))
values = critic(states).squeeze(-1)
advantage = returns - values
loss = -(logps * advantage.detach()).mean() + advantage.square().mean()
optimizer.zero_grad()
loss.backward()
optimizer.step()
print("actor", actor.weight.grad)
