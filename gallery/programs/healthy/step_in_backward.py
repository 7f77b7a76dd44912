import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 10), nn.GELU(), nn.Linear(10, 2))
optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}


def step(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(step)
for _ in range(3):
    nn.functional.cross_entropy(model(torch.randn(8, 5)), torch.randint(2, (8,))).backward()
print("no gradient is left", all(p.grad is None for p in model.parameters()))
