import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
g = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
d = nn.Sequential(nn.Linear(3, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
g_opt, d_opt = torch.optim.Adam(g.parameters()), torch.optim.Adam(d.parameters())
start = [g[0].weight.detach().clone(), d[0].weight.detach().clone()]
for real in torch.randn(3, 16, 3):
    fake = g(torch.randn(16, 4))
    d_opt.zero_grad()
    (F.softplus(-d(real)) + F.softplus(d(fake.detach()))).mean().backward()
    d_opt.step()
    g_opt.zero_grad()
    F.softplus(-d(fake)).mean().backward()
    g_opt.step()
print(
    "both moved", not torch.equal(start[0], g[0].weight) and not torch.equal(start[1], d[0].weight)
)
