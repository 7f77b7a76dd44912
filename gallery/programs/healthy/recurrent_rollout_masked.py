"""A2C with a GRU: hidden states of ended episodes are masked out of place; skip gradients are scaled."""

import torch
import torch.nn as nn
from torch.distributions import Categorical, Normal

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self, states=5, hidden=16, actions=3):
        super().__init__()
        self.encode = nn.Linear(states, hidden)
        self.cell = nn.GRUCell(hidden, hidden)
        self.actor = nn.Linear(hidden, actions)
        self.critic = nn.Linear(hidden, 1)
        self.explore = nn.Parameter(torch.zeros(1))

    def forward(self, state, hidden):
        code = torch.tanh(self.encode(state))
        side = code * 1.0
        if side.requires_grad:
            side.register_hook(lambda grad: grad * 0.5)
        hidden = self.cell(code, hidden) + side
        return Categorical(logits=self.actor(hidden)), self.critic(hidden).squeeze(-1), hidden


policy = Policy()
policy.actor.weight.register_hook(lambda grad: grad.clamp(-1, 1))
optimizer = torch.optim.RMSprop(policy.parameters(), lr=1e-3)
hidden = torch.zeros(6, 16)
for update in range(4):
    log_probs, values, rewards = [], [], []
    for _ in range(6):
        state = torch.randn(6, 5)
        dist, value, hidden = policy(state, hidden)
        noise = Normal(policy.explore.expand(6), 0.1).sample()
        action = dist.sample()
        done = torch.rand(6) < 0.2
        hidden = hidden * (1 - done.float()).unsqueeze(-1)
        log_probs.append(dist.log_prob(action) + Normal(policy.explore, 0.1).log_prob(noise))
        values.append(value)
        rewards.append((action == 0).float() + 0.1 * noise)
    hidden = hidden.detach()
    returns = torch.stack(rewards).flip(0).cumsum(0).flip(0)
    advantage = returns - torch.stack(values)
    weight = advantage.detach()
    weight = (weight - weight.mean()) / (weight.std() + 1e-8)
    loss = -(torch.stack(log_probs) * weight).mean() + 0.5 * advantage.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"update {update} loss {loss.item():.4f}")
print("done")
