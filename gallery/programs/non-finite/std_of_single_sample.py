import torch
from torch import nn

torch.manual_seed(0)
critic = nn.Linear(4, 1)
policy = nn.Linear(4, 3)
episodes = [torch.randn(12, 4), torch.randn(7, 4), torch.randn(1, 4)]
for states in episodes:
    rewards = torch.randn(len(states), 1)
    advantage = rewards - critic(states)
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)  # CAUSE
    logp = policy(states).log_softmax(-1)[:, :1]
    loss = -(logp * advantage).mean()
    loss.backward()
print("loss", loss.item())
