import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(6, 6)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)  # CAUSE
model.weight = nn.Parameter(torch.linalg.qr(torch.randn(6, 6))[0])  # CAUSE
weight, bias = model.weight.detach().clone(), model.bias.detach().clone()
for _ in range(3):
    x = torch.randn(10, 6)
    loss = (model(x) - x.flip(1)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(
    "weight moved",
    not torch.equal(weight, model.weight),
    "bias moved",
    not torch.equal(bias, model.bias),
)
