import torch
from torch import nn

torch.manual_seed(0)


class Pyramid(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 6, 3, padding=1)
        self.heads = nn.ModuleList(nn.Conv2d(6, 2, 1) for _ in range(3))

    def forward(self, x):
        out = []
        h = self.stem(x).relu()
        for head in self.heads:
            out.append(head(h))  # CAUSE
            h = nn.functional.avg_pool2d(h, 2)
        return out


model = Pyramid()
image = torch.randn(2, 3, 16, 16)
targets = [torch.rand(2, 2, 16, 16), torch.rand(2, 2, 8, 8)]
loss = 0.0
for prediction, target in zip(model(image), targets):  # CAUSE
    loss = loss + nn.functional.mse_loss(prediction, target)
loss.backward()
print("heads with gradient", [head.weight.grad is not None for head in model.heads])
