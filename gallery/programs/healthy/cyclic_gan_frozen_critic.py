import torch
from torch import nn

torch.manual_seed(0)
g, c = nn.Linear(4, 6), nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.1), nn.Linear(8, 1))
g_opt, c_opt = torch.optim.RMSprop(g.parameters()), torch.optim.RMSprop(c.parameters())
for _ in range(3):
    c.requires_grad_(True)
    with torch.no_grad():
        fake = g(torch.randn(8, 4))
    c_opt.zero_grad()
    (c(fake) - c(torch.randn(8, 6))).mean().backward()
    c_opt.step()
    c.requires_grad_(False)
    g_opt.zero_grad()
    (-c(g(torch.randn(8, 4)))).mean().backward()
    g_opt.step()
print("generator grad", bool(g.weight.grad.abs().sum() > 0))
