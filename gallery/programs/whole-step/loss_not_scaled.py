import torch
from torch import nn
import torch.nn.functional as F


class Generator(nn.Module):
    def __init__(self, noise=8, width=16):
        super().__init__()
        self.start = nn.Linear(noise, 4 * width)
        self.up = nn.ConvTranspose1d(width, width, 4, stride=2, padding=1)
        self.out = nn.Conv1d(width, 1, 3, padding=1)

    def forward(self, z):
        h = F.relu(self.start(z)).view(len(z), -1, 4)
        return torch.tanh(self.out(F.relu(self.up(h))))


class Critic(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(1, width, 4, stride=2, padding=1),
            nn.LeakyReLU(0.2),
            nn.Flatten(),
            nn.Linear(4 * width, 1),
        )

    def forward(self, x):
        return self.net(x).squeeze(1)


torch.manual_seed(0)
G, D = Generator(), Critic()
opt_g = torch.optim.SGD(G.parameters(), lr=0.05)
opt_d = torch.optim.SGD(D.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu")
before = torch.cat([p.detach().flatten() for p in G.parameters()])
for step in range(10):
    real, z = torch.sin(torch.arange(8.0) + 6 * torch.rand(16, 1, 1)), torch.randn(16, 8)

    opt_d.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss_d = F.softplus(-D(real)).mean() + F.softplus(D(G(z).detach())).mean()
    scaler.scale(loss_d).backward()
    scaler.step(opt_d)

    opt_g.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss_g = F.softplus(-D(G(z))).mean()
    loss_g.backward()  # CAUSE
    scaler.step(opt_g)
    scaler.update()
    print(f"step {step} critic {loss_d.item():.4f} generator {loss_g.item():.4f}")
after = torch.cat([p.detach().flatten() for p in G.parameters()])
print(f"relative change {((after - before).norm() / before.norm()).item():.1e}")
