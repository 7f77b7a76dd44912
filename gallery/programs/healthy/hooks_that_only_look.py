import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
seen = []
for name, parameter in model.named_parameters():
    parameter.register_hook(lambda grad, name=name: seen.append((name, grad.norm().item())))
model[0].register_full_backward_hook(lambda m, gi, go: seen.append(("0", go[0].norm().item())))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    h = model[0](torch.randn(6, 4))
    h.register_hook(lambda grad: seen.append(("h", grad.norm().item())))
    optimizer.zero_grad()
    model[2](model[1](h)).square().mean().backward()
    optimizer.step()
print("seen", len(seen))
