import torch
from torch import nn

torch.manual_seed(0)


class Lora(nn.Module):
    def __init__(self, base, rank):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(rank, base.in_features) * 0.1)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + x @ self.a.T @ self.b.T


model = nn.Sequential(Lora(nn.Linear(6, 6), 2), nn.GELU(), Lora(nn.Linear(6, 3), 2))
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.5)
before = model[0].a.detach().clone()
for _ in range(4):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(torch.randn(16, 6)), torch.randint(3, (16,))).backward()
    optimizer.step()
print("a moved", not torch.equal(before, model[0].a))
