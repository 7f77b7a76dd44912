import torch
from torch import nn

torch.manual_seed(0)


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1))

    @torch.no_grad()
    def features(self, images):
        return self.conv(images).flatten(1)  # CAUSE


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = Backbone()
        self.head = nn.Linear(8, 5)

    def forward(self, images):
        return self.head(self.backbone.features(images))  # CAUSE


model = Classifier()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss = nn.functional.cross_entropy(model(torch.randn(4, 3, 12, 12)), torch.randint(5, (4,)))
loss.backward()
optimizer.step()
print("backbone", model.backbone.conv[0].weight.grad)
