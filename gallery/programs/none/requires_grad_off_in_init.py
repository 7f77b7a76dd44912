import torch
from torch import nn

torch.manual_seed(0)


class Adapted(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(8, 8)
        self.adapter = nn.Sequential(nn.Linear(8, 2), nn.ReLU(), nn.Linear(2, 8))
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        h = self.base(x)
        return self.head(h + self.adapter(h))


model = Adapted()
model.requires_grad_(False)  # CAUSE
model.head.requires_grad_(True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loss = nn.functional.cross_entropy(model(torch.randn(8, 8)), torch.randint(2, (8,)))
loss.backward()
optimizer.step()
print("adapter", model.adapter[0].weight.grad)
