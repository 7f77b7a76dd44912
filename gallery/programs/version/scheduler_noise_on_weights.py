import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 10), nn.SiLU(), nn.Linear(10, 2))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)


@torch.no_grad()
def perturb(module, scale):
    for parameter in module.parameters():
        parameter.add_(torch.randn_like(parameter), alpha=scale)  # CAUSE


losses = []
for micro in torch.randn(3, 4, 6):
    losses.append(nn.functional.cross_entropy(model(micro), torch.randint(2, (4,))))
    perturb(model, 1e-3)
optimizer.zero_grad()
torch.stack(losses).mean().backward()
optimizer.step()
