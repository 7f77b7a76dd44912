import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.AdamW(model.parameters(), lr=1.0, weight_decay=10.0)  # CAUSE
for _ in range(30):
    x = torch.randn(16, 4)
    loss = nn.functional.smooth_l1_loss(model(x), x[:, :1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()  # CAUSE
print(f"weights {model.weight.abs().max().item():.3e}")
