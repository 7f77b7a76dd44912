import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
sizes = []
for step in range(6):
    norms = []
    model[0].weight.register_hook(
        lambda grad, norms=norms: norms.append(grad.norm().item())
    )  # CAUSE
    loss = model(torch.randn(8, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    sizes.append(len(model[0].weight._backward_hooks))
print("hooks", sizes)
