import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def fused_step(parameter):
    while any(p.grad is None for p in model.parameters()):  # CAUSE
        pass  # CAUSE
    optimizer.step()


model[2].bias.register_post_accumulate_grad_hook(fused_step)
print("fused step", flush=True)
model(torch.randn(4, 3)).square().mean().backward()
