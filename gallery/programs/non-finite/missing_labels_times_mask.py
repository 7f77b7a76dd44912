import torch
from torch import nn

torch.manual_seed(0)
nan = float("nan")
x = torch.randn(64, 10)
labels = torch.randn(64, 3)
labels[torch.rand(64, 3) < 0.2] = nan  # not every assay was run on every molecule
known = ~labels.isnan()

model = nn.Sequential(nn.Linear(10, 24), nn.ReLU(), nn.Linear(24, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def masked_mse(prediction, target, mask):
    error = (prediction - target).square()
    return (error * mask).sum() / mask.sum()  # CAUSE


for epoch in range(2):
    for rows in torch.randperm(64).split(16):
        optimizer.zero_grad()
        loss = masked_mse(model(x[rows]), labels[rows], known[rows])
        loss.backward()
        optimizer.step()
    print("epoch", epoch, "loss", loss.item())
