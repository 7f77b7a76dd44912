import torch
from torch import nn


class Rotary(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.phase = nn.Parameter(torch.empty(width))
        self.reset()

    def reset(self):
        self.phase.fill_(0.1)  # CAUSE

    def forward(self, x):
        return torch.cos(x + self.phase)


model = Rotary(6)
model(torch.randn(2, 6)).sum().backward()
