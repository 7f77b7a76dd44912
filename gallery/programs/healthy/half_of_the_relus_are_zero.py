import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 4))
with torch.no_grad():
    model[0].bias -= 0.3
    model[2].bias -= 0.2
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
centres = torch.randn(4, 16)
for step in range(30):
    y = torch.randint(4, (64,))
    x = centres[y] + 0.5 * torch.randn(64, 16)
    hidden = model[:2](x)
    loss = nn.functional.cross_entropy(model[2:](hidden), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"zeros {(hidden == 0).float().mean():.2f}")
