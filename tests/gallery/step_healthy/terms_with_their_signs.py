"""Terms of losses with a plus or a minus, each as it should be."""

import torch
from torch import nn


def program() -> None:
    model, policy = nn.Linear(5, 1), nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = torch.optim.Adam([*model.parameters(), *policy.parameters()], lr=0.01)
    for _ in range(8):
        x = torch.randn(16, 5)
        actions = torch.distributions.Categorical(logits=policy(x))
        taken = actions.sample()
        reward = (taken == 1).float()
        chosen = -(actions.log_prob(taken) * (reward - reward.mean())).mean()
        size = sum(w.square().sum() for w in model.parameters())
        error = (model(x) - x[:, :1]).square().mean()
        loss = error + 1e-3 * size + chosen - 0.01 * actions.entropy().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
