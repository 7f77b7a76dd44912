import torch
from torch import nn
from torch.nn.utils import parametrize

torch.manual_seed(0)


class Unit(nn.Module):
    def forward(self, w):
        return w / (w.norm(dim=1, keepdim=True) + 1e-6)


model = nn.Linear(5, 5)
counts = []
for epoch in range(4):
    parametrize.register_parametrization(model, "weight", Unit())  # CAUSE
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x in torch.randn(2, 8, 5):
        optimizer.zero_grad()
        (model(x) - x).square().mean().backward()
        optimizer.step()
    counts.append(len(model.parametrizations.weight))
print("parametrisations", counts)
