import torch
from torch import nn

torch.manual_seed(0)


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        power = (x * x).mean(-1, keepdim=True)  # CAUSE
        return x / (power + 1e-4).sqrt() * self.gain


block = nn.Sequential(nn.Linear(8, 8), RmsNorm(8), nn.Linear(8, 1)).half()
x = torch.randn(4, 8).half()
x[1] *= 900
loss = (block(x) - 1).square().float().mean()
loss.backward()
print("loss", loss.item())
print("grads finite", all(bool(p.grad.isfinite().all()) for p in block.parameters()))
