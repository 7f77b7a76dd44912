import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Linear(5, 4)
nn.init.normal_(encoder.weight, std=0.01)
optimizer = torch.optim.Adam(encoder.parameters(), lr=0.05)
centres = torch.eye(5)[:3] * 4
for step in range(60):
    labels = torch.arange(3).repeat(6)
    anchor = encoder(centres[labels] + 0.1 * torch.randn(18, 5))
    positive = encoder(centres[labels] + 0.1 * torch.randn(18, 5))
    negative = encoder(centres[(labels + 1) % 3] + 0.1 * torch.randn(18, 5))
    loss = nn.functional.triplet_margin_loss(anchor, positive, negative, margin=1.0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("last loss", loss.item())
