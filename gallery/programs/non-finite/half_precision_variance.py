import torch
from torch import nn

torch.manual_seed(0)


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        scale = torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)  # CAUSE
        return x * scale * self.gain


block = nn.Sequential(nn.Linear(8, 8), RmsNorm(8), nn.Linear(8, 1)).half()
x = torch.randn(4, 8).half()
x[1] *= 900
out = block(x)
loss = (out - 1).square().float().mean() + (block[0](x) ** 2).mean().float()
loss.backward()
print("out finite", bool(loss.isfinite()))
