import torch
from torch import nn
from torch.distributions import Normal


class GaussianActor(nn.Module):
    def __init__(self, obs, act):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs, 32), nn.ReLU(), nn.Linear(32, act))
        self.log_std = nn.Parameter(torch.full((act,), -25.0))

    def forward(self, obs):
        log_std = self.log_std.clamp(-5, 2)  # CAUSE
        return Normal(self.body(obs), log_std.exp())


torch.manual_seed(0)
actor = GaussianActor(6, 2)
optimizer = torch.optim.Adam(actor.parameters(), lr=3e-3)
start = actor.log_std.detach().clone()
for update in range(8):
    obs = torch.randn(64, 6)
    expert = obs[:, :2] + 0.3 * torch.randn(64, 2)
    loss = -actor(obs).log_prob(expert).sum(-1).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(actor.parameters(), 1.0)
    optimizer.step()
print("log_std moved", not torch.equal(start, actor.log_std))
