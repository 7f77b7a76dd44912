import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
model = nn.Linear(6, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(
    optimizer, mode="max", patience=2, factor=0.1
)  # CAUSE
x = torch.randn(128, 6)
y = x @ torch.randn(6, 1)
for epoch in range(40):
    for rows in torch.arange(128).split(64):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
    scheduler.step(loss.item())
print("lr", optimizer.param_groups[0]["lr"])
