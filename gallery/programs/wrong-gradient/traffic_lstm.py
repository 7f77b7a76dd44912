"""Traffic forecasting: an LSTM over twelve readings of a sensor predicts the next one."""

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


def windows(series, length):
    x = torch.stack([series[i : i + length] for i in range(len(series) - length)])
    y = series[length:, 0]
    return TensorDataset(x, y)


class Forecaster(nn.Module):
    def __init__(self, features=3, hidden=24):
        super().__init__()
        self.lstm = nn.LSTM(features, hidden, num_layers=2)  # CAUSE
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Sequential(nn.Linear(hidden, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x):
        # x: (batch, time, features)
        out, _ = self.lstm(x)  # CAUSE
        last = self.dropout(out[:, -1, :])
        return self.head(last).squeeze(-1)


def make_series(n=400):
    t = torch.arange(n).float()
    speed = torch.sin(t / 12) + 0.1 * torch.randn(n)
    flow = torch.cos(t / 12) + 0.1 * torch.randn(n)
    hour = (t % 24) / 24
    return torch.stack([speed, flow, hour], dim=-1)


series = make_series()
train = windows(series[:320], 12)
loader = DataLoader(train, batch_size=32, shuffle=True, drop_last=False)

model = Forecaster()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=3)
criterion = nn.MSELoss()

for epoch in range(3):
    model.train()
    total, count = 0.0, 0
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        total, count = total + loss.item() * len(x), count + len(x)
    scheduler.step()
    print(f"epoch {epoch}: mse {total / count:.4f}")

model.eval()
x = torch.stack([train[i][0] for i in range(4)]).requires_grad_()
(grad,) = torch.autograd.grad(model(x)[3], x)
print("windows that move the forecast of window 3:", int((grad.flatten(1).norm(dim=1) > 0).sum()))
