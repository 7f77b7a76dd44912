"""Stages of fine tuning, saliency, and a validation generator that leaves no_grad before it yields."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stage1 = nn.Linear(12, 24)
        self.stage2 = nn.Linear(24, 24)
        self.head = nn.Linear(24, 3)

    def forward(self, x):
        return self.head(F.gelu(self.stage2(F.gelu(self.stage1(x)))))


def predictions(model, loader):
    for x, y in loader:
        with torch.no_grad():
            found = model(x).argmax(-1)
        yield found, y


@torch.no_grad()
def confidences(model, loader):
    for x, _ in loader:
        yield model(x).softmax(-1).amax(-1)


def train(model, loader, valid, epochs):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    peek, sure = predictions(model, valid), confidences(model, valid)
    for epoch in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        found, y = next(peek)
        print(f"epoch {epoch} acc {(found == y).float().mean():.2f} sure {next(sure).mean():.2f}")


x = torch.randn(90, 12)
y = x[:, :3].argmax(-1)
loader = DataLoader(TensorDataset(x[:60], y[:60]), batch_size=15, shuffle=True)
valid = DataLoader(TensorDataset(x[60:], y[60:]), batch_size=10)
model = Net()
model.stage1.requires_grad_(False)
model.stage2.requires_grad_(False)
train(model, loader, valid, 1)
model.stage2.requires_grad_(True)
train(model, loader, valid, 2)

model.eval()
inputs = x[:4].clone().requires_grad_()
model(inputs).amax(-1).sum().backward()
print("saliency", inputs.grad.shape)
