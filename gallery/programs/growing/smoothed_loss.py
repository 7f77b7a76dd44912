import torch
from torch import nn

torch.manual_seed(0)


def depth(fn):
    n = 0
    while fn is not None and fn.next_functions:
        fn, n = fn.next_functions[0][0], n + 1
    return n


class Meter:
    def __init__(self):
        self.value = None

    def update(self, loss):
        self.value = loss if self.value is None else 0.9 * self.value + 0.1 * loss  # CAUSE


model, meter, depths = nn.Linear(5, 1), Meter(), []
optimizer = torch.optim.Adam(model.parameters())
for _ in range(7):
    loss = model(torch.randn(8, 5)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    meter.update(loss)
    depths.append(depth(meter.value.grad_fn))
print("depth of the average:", depths)
