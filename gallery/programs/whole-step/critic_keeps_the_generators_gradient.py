import torch
from torch import nn
import torch.nn.functional as F


class Generator(nn.Module):
    def __init__(self, noise=8, size=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(noise, 32), nn.ReLU(), nn.Linear(32, size), nn.Tanh())

    def forward(self, z):
        return self.net(z)


class Discriminator(nn.Module):
    def __init__(self, size=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(size, 32), nn.LeakyReLU(0.2), nn.Linear(32, 1))

    def forward(self, x):
        return self.net(x).squeeze(1)


torch.manual_seed(0)
G, D = Generator(), Discriminator()
opt_g = torch.optim.Adam(G.parameters(), lr=2e-4, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(D.parameters(), lr=2e-4, betas=(0.5, 0.999))
ones, zeros = torch.ones(32), torch.zeros(32)
for step in range(6):
    real, z = torch.randn(32, 16) * 0.3, torch.randn(32, 8)

    opt_g.zero_grad()
    loss_g = F.binary_cross_entropy_with_logits(D(G(z)), ones)
    loss_g.backward()  # CAUSE
    opt_g.step()

    fake = G(z).detach()
    loss_d = F.binary_cross_entropy_with_logits(D(real), ones)
    loss_d = loss_d + F.binary_cross_entropy_with_logits(D(fake), zeros)
    pure = torch.autograd.grad(loss_d, list(D.parameters()), retain_graph=True)
    loss_d.backward()
    error = max((p.grad - g).abs().max().item() for p, g in zip(D.parameters(), pure))
    opt_d.step()  # CAUSE
    opt_d.zero_grad()
print("gradient of D is off:", error > 1e-4)
