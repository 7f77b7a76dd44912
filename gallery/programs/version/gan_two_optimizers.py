import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 6))
discriminator = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
g_opt = torch.optim.Adam(generator.parameters(), lr=2e-4)
d_opt = torch.optim.Adam(discriminator.parameters(), lr=2e-4)

for real in torch.randn(2, 16, 6):
    fake = generator(torch.randn(16, 4))
    verdict = discriminator(fake)
    g_loss = F.binary_cross_entropy_with_logits(verdict, torch.ones(16, 1))
    d_loss = F.binary_cross_entropy_with_logits(discriminator(real), torch.ones(16, 1))
    d_loss = d_loss + F.binary_cross_entropy_with_logits(verdict, torch.zeros(16, 1))
    d_opt.zero_grad()
    d_loss.backward(retain_graph=True)
    d_opt.step()  # CAUSE
    g_opt.zero_grad()
    g_loss.backward()
    g_opt.step()
