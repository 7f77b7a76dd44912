import torch
from torch import nn

torch.manual_seed(0)
kept, sizes = [], []


def watch(module, grad_input, grad_output):
    kept.append(grad_output[0])  # CAUSE


model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
for layer in (model[0], model[2]):
    layer.register_full_backward_hook(watch)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(5):
    optimizer.zero_grad()
    model(torch.randn(16, 8)).sum().backward()
    optimizer.step()
    sizes.append(len(kept))
print("kept tensors", sizes)
