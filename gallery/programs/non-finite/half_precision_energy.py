import torch
from torch import nn

torch.manual_seed(0)


class EnergyGate(nn.Module):
    """Weights features by their share of the energy."""

    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        energy = x * x  # CAUSE
        share = energy / energy.sum(-1, keepdim=True)
        return x * share * self.gain


block = nn.Sequential(nn.Linear(8, 8), EnergyGate(8), nn.Linear(8, 1)).half()
x = torch.randn(4, 8).half()
x[1] *= 900
loss = (block(x) - 1).float().square().mean()
loss.backward()
print("loss", loss.item())
print("grads finite", all(bool(p.grad.isfinite().all()) for p in block.parameters()))
