import torch
from torch import nn

torch.manual_seed(0)


class SqueezeExcite(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.gate = nn.Linear(channels, channels)

    def forward(self, x):
        y = self.conv(x)
        weight = self.gate(y.mean((2, 3))).sigmoid()[..., None, None]
        out = y * weight
        y += x  # CAUSE
        return out + y


net = nn.Sequential(SqueezeExcite(3), SqueezeExcite(3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
net(torch.randn(2, 3, 6, 6)).square().mean().backward()
optimizer.step()
