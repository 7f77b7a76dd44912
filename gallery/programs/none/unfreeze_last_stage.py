"""Fine tuning in two stages: the head first, then the last stage of the backbone as well."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Stage(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(cout)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)))


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stage1 = Stage(3, 8)
        self.stage2 = Stage(8, 16)
        self.stage3 = Stage(16, 32)

    def forward(self, x):
        return self.stage3(self.stage2(self.stage1(x))).mean(dim=(2, 3))


class Classifier(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        self.backbone = Backbone()
        self.head = nn.Linear(32, classes)

    def forward(self, x):
        return self.head(self.backbone(x))


def freeze(module):
    for parameter in module.parameters():
        parameter.requires_grad = False


def train(model, loader, epochs, lr):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    for epoch in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
        print(f"lr {lr} epoch {epoch} loss {loss.item():.4f}")


x, y = torch.randn(40, 3, 16, 16), torch.randint(0, 5, (40,))
loader = DataLoader(TensorDataset(x, y), batch_size=10, shuffle=True)
model = Classifier()

freeze(model.backbone)
train(model, loader, epochs=1, lr=0.05)

for name, child in model.backbone.named_children():
    if name in ("stage2", "stage3"):
        child.requires_grad = True  # CAUSE
train(model, loader, epochs=2, lr=0.005)
print("stage3 grad:", model.backbone.stage3.conv.weight.grad)
