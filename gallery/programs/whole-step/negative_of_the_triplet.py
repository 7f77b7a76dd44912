import torch
from torch import nn

torch.manual_seed(0)
embed = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 8))
optimizer = torch.optim.Adam(embed.parameters(), lr=1e-2)
centres = torch.randn(10, 6)
for step in range(60):
    which = torch.randint(10, (64,))
    other = (which + torch.randint(1, 10, (64,))) % 10
    anchor = embed(centres[which] + 0.1 * torch.randn(64, 6))
    positive = embed(centres[which] + 0.1 * torch.randn(64, 6))
    negative = embed(centres[other] + 0.1 * torch.randn(64, 6))
    near = (anchor - positive).square().sum(1)
    far = (anchor - negative).square().sum(1)
    loss = (0.1 * near - far).mean()  # CAUSE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("positives far apart", near.mean().item() > 10)
