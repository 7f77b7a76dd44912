import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
critic = nn.Sequential(nn.Linear(4, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
g_opt = torch.optim.Adam(generator.parameters(), lr=2e-4)
d_opt = torch.optim.Adam(critic.parameters(), lr=2e-4)

for step in range(2):
    real = torch.randn(32, 4) + 2
    fake = generator(torch.randn(32, 8)).detach()  # CAUSE
    d_loss = F.softplus(-critic(real)).mean() + F.softplus(critic(fake)).mean()
    d_opt.zero_grad()
    d_loss.backward()
    d_opt.step()

    g_opt.zero_grad()
    g_loss = F.softplus(-critic(fake)).mean()
    g_loss.backward()
    g_opt.step()

print("generator grads:", [p.grad for p in generator.parameters()])
