import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

torch.manual_seed(0)
encoder = nn.Linear(6, 4)
log_scale = nn.Parameter(torch.zeros(2))
optimizer = torch.optim.Adam([*encoder.parameters(), log_scale])
prior = Normal(torch.zeros(2), log_scale.exp())  # CAUSE
for _ in range(2):
    mean, raw = encoder(torch.randn(10, 6)).chunk(2, -1)
    loss = kl_divergence(Normal(mean, raw.exp()), prior).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
