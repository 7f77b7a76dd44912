import torch
from torch import nn

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.norm(self.conv(x))
        y += x
        return self.act(y)


model = nn.Sequential(nn.Conv2d(1, 4, 1), Block(4), Block(4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.randn(2, 1, 8, 8)).mean().backward()
    optimizer.step()
print("grad norm", model[0].weight.grad.norm().item())
