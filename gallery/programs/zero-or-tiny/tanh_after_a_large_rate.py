import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Sequential(nn.Linear(10, 40), nn.Tanh())
decoder = nn.Linear(40, 10)
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=2e-3)
scheduler = torch.optim.lr_scheduler.LambdaLR(
    optimizer, lambda step: 1.0 if step < 6 else 5000.0
)  # CAUSE
for step in range(14):
    x = torch.randn(50, 10)
    hidden = encoder(x)  # CAUSE
    loss = (decoder(hidden) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    scheduler.step()
print(f"at the rim {(hidden.abs() > 0.99).float().mean():.2f}")
