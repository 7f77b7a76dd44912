"""REINFORCE with a Gaussian policy on a one-dimensional swing-up task."""

import torch
import torch.nn as nn
from torch.distributions import Normal

torch.manual_seed(0)


class Env:
    def __init__(self, count=16):
        self.count = count

    def reset(self):
        self.angle = torch.rand(self.count) * 2 - 1
        self.speed = torch.zeros(self.count)
        return self.state()

    def state(self):
        return torch.stack([self.angle.cos(), self.angle.sin(), self.speed], dim=-1)

    def step(self, action):
        torque = action.squeeze(-1).clamp(-2, 2)
        self.speed = 0.95 * self.speed + 0.1 * (torque - self.angle.sin())
        self.angle = self.angle + 0.1 * self.speed
        return self.state(), -(self.angle**2) - 0.01 * torque**2


class Policy(nn.Module):
    def __init__(self, states=3, actions=1, hidden=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(states, hidden), nn.Tanh())
        self.mean = nn.Linear(hidden, actions)
        self.log_std = nn.Parameter(torch.full((actions,), -0.5))

    def forward(self, state):
        return Normal(self.mean(self.body(state)), self.log_std.exp())


env, policy = Env(), Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3)

for episode in range(6):
    state, log_probs, rewards = env.reset(), [], []
    for _ in range(12):
        dist = policy(state)
        action = dist.rsample()  # CAUSE
        log_probs.append(dist.log_prob(action).sum(-1))  # CAUSE
        state, reward = env.step(action.detach())
        rewards.append(reward)

    returns, running = [], torch.zeros(env.count)
    for reward in reversed(rewards):
        running = reward + 0.98 * running
        returns.insert(0, running)
    returns = torch.stack(returns)
    returns = (returns - returns.mean()) / (returns.std() + 1e-6)

    loss = -(torch.stack(log_probs) * returns).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"episode {episode}: return {torch.stack(rewards).sum(0).mean().item():.2f}")

print("mean head grad norm:", policy.mean.weight.grad.norm().item())
print("log_std grad norm:", policy.log_std.grad.norm().item())
