import torch
from torch import nn

torch.manual_seed(0)


class LoraLinear(nn.Module):
    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.zeros(rank, base.in_features))
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, x):
        return self.base(x) + x @ self.a.T @ self.b.T  # CAUSE


model = nn.Sequential(LoraLinear(nn.Linear(8, 8)), nn.ReLU(), LoraLinear(nn.Linear(8, 3)))
optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-2)
for _ in range(3):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(torch.randn(8, 8)), torch.randint(3, (8,))).backward()
    optimizer.step()
print("a", model[0].a.grad.abs().max().item(), "b", model[0].b.grad.abs().max().item())
