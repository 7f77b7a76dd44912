import torch
from torch import nn

torch.manual_seed(0)


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, 2)

    def forward(self, x, padding):
        q, k, v = self.qkv(x).chunk(3, -1)
        scores = q @ k.transpose(1, 2) / x.shape[-1] ** 0.5
        causal = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(causal, float("-inf"))
        scores = scores.masked_fill(padding[:, None], float("-inf"))
        return self.out(scores.softmax(-1) @ v)


model = Attention(8)
optimizer = torch.optim.AdamW(model.parameters())
padding = torch.tensor([[False] * 6, [False] * 3 + [True] * 3])
for _ in range(2):
    optimizer.zero_grad()
    model(torch.randn(2, 6, 8), padding)[~padding].square().mean().backward()
    optimizer.step()
print("finite", bool(model.qkv.weight.grad.isfinite().all()))
