"""Online actor-critic on a bandit with a context: one step of one environment per update."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical

torch.manual_seed(0)


class ActorCritic(nn.Module):
    def __init__(self, states=6, actions=4, hidden=32):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(states, hidden), nn.ReLU())
        self.actor = nn.Linear(hidden, actions)
        self.critic = nn.Linear(hidden, 1)

    def forward(self, state):
        hidden = self.body(state)
        return Categorical(logits=self.actor(hidden)), self.critic(hidden).squeeze(-1)


class Rollout:
    """Holds ``horizon`` steps until they are learnt from."""

    def __init__(self, horizon):
        self.horizon = horizon
        self.clear()

    def clear(self):
        self.log_probs, self.values, self.rewards, self.entropies = [], [], [], []

    def add(self, log_prob, value, reward, entropy):
        self.log_probs.append(log_prob)
        self.values.append(value)
        self.rewards.append(reward)
        self.entropies.append(entropy)

    @property
    def full(self):
        return len(self.rewards) == self.horizon


def advantages(rewards, values, eps=1e-8):
    adv = rewards - values.detach()
    return (adv - adv.mean()) / (adv.std(unbiased=False) + eps)  # CAUSE


model = ActorCritic()
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
best = torch.randn(6, 4)
rollout = Rollout(horizon=1)  # CAUSE

for step in range(12):
    state = torch.randn(6)
    dist, value = model(state)
    action = dist.sample()
    reward = (state @ best)[action]
    rollout.add(dist.log_prob(action), value, reward, dist.entropy())
    if not rollout.full:
        continue
    log_probs, values = torch.stack(rollout.log_probs), torch.stack(rollout.values)
    rewards = torch.stack(rollout.rewards)
    policy_loss = -(log_probs * advantages(rewards, values)).mean()
    value_loss = F.smooth_l1_loss(values, rewards)
    optimizer.zero_grad()
    (policy_loss + 0.5 * value_loss).backward()
    optimizer.step()
    rollout.clear()
    if step % 4 == 0:
        print(
            f"step {step}: value loss {value_loss.item():.3f} policy loss {policy_loss.item():.3f}"
        )

print("actor grad:", model.actor.weight.grad.abs().sum().item())
print("critic grad:", model.critic.weight.grad.abs().sum().item())
