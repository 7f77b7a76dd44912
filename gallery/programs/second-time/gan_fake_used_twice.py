import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
generator = nn.Sequential(nn.Linear(4, 12), nn.Tanh(), nn.Linear(12, 6))
discriminator = nn.Sequential(nn.Linear(6, 12), nn.LeakyReLU(), nn.Linear(12, 1))
d_opt = torch.optim.Adam(discriminator.parameters())
g_opt = torch.optim.Adam(generator.parameters())
real = torch.randn(8, 6)
fake = generator(torch.randn(8, 4))
d_loss = F.softplus(discriminator(fake)).mean() + F.softplus(-discriminator(real)).mean()  # CAUSE
d_opt.zero_grad()
d_loss.backward()  # CAUSE
d_opt.step()
g_loss = F.softplus(-discriminator(fake)).mean()
g_opt.zero_grad()
g_loss.backward()
g_opt.step()
