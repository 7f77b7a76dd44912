"""A segmentation net: a hook on the skip connection is to halve what flows back through it."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, padding=1)
        self.norm = nn.GroupNorm(4, cout)

    def forward(self, x):
        return F.silu(self.norm(self.conv(x)))


class SmallUNet(nn.Module):
    def __init__(self, damp=0.5, width=16):
        super().__init__()
        self.damp = damp
        self.enc = Block(3, width)
        self.down = Block(width, width)
        self.bottleneck = Block(width, width)
        self.up = nn.Conv2d(width, width, 3, padding=1)
        self.out = nn.Conv2d(width, 2, 1)

    def _damp(self, grad):
        # the skip shall not drown the deep path
        grad.mul_(self.damp)  # CAUSE

    def forward(self, x):
        skip = self.enc(x)
        deep = self.bottleneck(self.down(F.max_pool2d(skip, 2)))
        deep = self.up(F.interpolate(deep, scale_factor=2, mode="nearest"))
        side = skip * 1.0
        if self.training and self.damp != 1.0:
            side.register_hook(self._damp)  # CAUSE
        return self.out(side + deep)


images = torch.randn(24, 3, 16, 16)
masks = (images.mean(1) > 0).long()
loader = DataLoader(TensorDataset(images, masks), batch_size=8)
model = SmallUNet()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2)

for epoch in range(2):
    for x, y in loader:
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch} loss {loss.item():.4f}")


def deep_gradient(damp):
    model.damp = damp
    model.zero_grad()
    F.cross_entropy(model(images[:8]), masks[:8]).backward()
    return model.bottleneck.conv.weight.grad.norm()


print(
    "deep path with the hook / without:", round((deep_gradient(0.5) / deep_gradient(1.0)).item(), 3)
)
