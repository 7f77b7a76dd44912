import torch
from torch import nn

torch.manual_seed(0)


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x):
        scores = self.query(x) @ self.key(x).transpose(-2, -1) * x.shape[-1]
        return torch.softmax(scores, -1) @ self.value(x)  # CAUSE


layer = Attention(64)
x = torch.randn(2, 6, 64) * 30
layer(x).square().mean().backward()
print("key grad", layer.key.weight.grad.abs().max().item())
