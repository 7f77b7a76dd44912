import torch
from torch import nn
import torch.nn.functional as F


def init_weights(m):
    if isinstance(m, (nn.Linear, nn.Conv2d)):
        nn.init.normal_(m.weight, 0.0, 1e-4)  # CAUSE
        nn.init.zeros_(m.bias)


class VGG(nn.Module):
    def __init__(self, classes=5):
        super().__init__()
        widths = [3, 8, 8, 16, 16]
        layers = []
        for a, b in zip(widths, widths[1:]):
            layers += [nn.Conv2d(a, b, 3, padding=1), nn.ReLU()]
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.classifier = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, classes))
        self.apply(init_weights)  # CAUSE

    def forward(self, x):
        return self.classifier(self.features(x))


torch.manual_seed(0)
model = VGG()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
for step in range(5):
    x, y = torch.rand(16, 3, 16, 16), torch.randint(0, 5, (16,))
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("first convolution:", model.features[0].weight.grad.abs().max().item())
print("loss", loss.item())
