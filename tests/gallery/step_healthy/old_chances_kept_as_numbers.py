"""Log-probabilities of the old policy are kept as values; the new ones are computed anew."""

import torch
from torch import nn
from torch.distributions import Categorical


def program() -> None:
    actor = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 4))
    optimizer = torch.optim.Adam(actor.parameters(), lr=0.01)
    for _ in range(4):
        states, actions, chances, rewards = [], [], [], []
        for _ in range(12):
            state = torch.randn(3)
            choices = Categorical(logits=actor(state))
            action = choices.sample()
            states.append(state)
            actions.append(action)
            chances.append(choices.log_prob(action))
            rewards.append(float(action == 2))
        old = torch.tensor(chances)
        advantage = torch.tensor(rewards) - sum(rewards) / len(rewards)
        for _ in range(3):
            new = Categorical(logits=actor(torch.stack(states))).log_prob(torch.stack(actions))
            ratio = (new - old).exp()
            clipped = ratio.clamp(0.8, 1.2)
            loss = -torch.minimum(ratio * advantage, clipped * advantage).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
