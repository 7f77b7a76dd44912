import torch
from torch import nn

torch.manual_seed(0)


class Moe(nn.Module):
    def __init__(self, width, n, k=2):
        super().__init__()
        self.router = nn.Linear(width, n)
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(n))
        self.k = k

    def forward(self, x):
        p, chosen = self.router(x).softmax(-1).topk(self.k, -1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            token, slot = (chosen == i).nonzero(as_tuple=True)
            out = out.index_add(0, token, p[token, slot, None] * expert(x[token]))
        return x + out


model = Moe(6, 8)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(3, 6)).square().mean().backward()
    optimizer.step()
print("router grad", bool(model.router.weight.grad.abs().max() > 0))
