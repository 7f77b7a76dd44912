import torch
from torch import nn

torch.manual_seed(0)


class FineTuned(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base
        self.new_head = nn.Linear(12, 4)  # CAUSE

    def forward(self, x):
        return self.base(x)  # CAUSE


base = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 4))
model = FineTuned(base)
optimizer = torch.optim.Adam(model.parameters())
loss = nn.functional.cross_entropy(model(torch.randn(8, 6)), torch.randint(4, (8,)))
loss.backward()
optimizer.step()
print("new head", model.new_head.weight.grad)
