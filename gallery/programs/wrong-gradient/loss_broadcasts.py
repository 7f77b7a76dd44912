import warnings

import torch
from torch import nn

warnings.filterwarnings("ignore")
torch.manual_seed(0)
x = torch.randn(32, 1)
y = 3 * x[:, 0] + 1
model = nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(200):
    loss = nn.functional.mse_loss(model(x), y)  # CAUSE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"slope {model.weight.item():.3f}")
