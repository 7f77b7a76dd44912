import torch
from torch import nn

torch.manual_seed(0)


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q = nn.Linear(width, width)
        self.k = nn.Linear(width, width)
        self.v = nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        scores = q @ k.transpose(-2, -1)  # CAUSE
        return (scores / x.shape[-1] ** 0.5).softmax(-1) @ v


model = Attention(64).half()
x = (torch.randn(2, 10, 64) * 250).half()
out = model(x)
loss = out.float().square().mean()
loss.backward()
print("out finite", out.isfinite().all().item())
