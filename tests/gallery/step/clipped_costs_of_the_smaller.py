"""Of surrogates with a minus, the smaller is taken: it is the larger one that clips.

finding: clip undone
"""

import torch
from torch import nn
from torch.distributions import Categorical


def program() -> nn.Module:
    net = nn.Linear(4, 3)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
    for _ in range(4):
        states = torch.randn(32, 4)
        with torch.no_grad():
            choice = Categorical(logits=net(states))
            actions = choice.sample()
            old = choice.log_prob(actions)
        gains = (actions == states.argmax(1).clamp(max=2)).float() - 0.3
        for _ in range(3):
            ratio = torch.exp(Categorical(logits=net(states)).log_prob(actions) - old)
            pg_loss1 = -gains * ratio
            pg_loss2 = -gains * torch.clamp(ratio, 0.8, 1.2)
            loss = torch.min(pg_loss1, pg_loss2).mean()  # cause
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return net
