import warnings

import torch

warnings.simplefilter("ignore")
torch.manual_seed(0)
weight = torch.randn(5, 3, requires_grad=True) * 0.1  # CAUSE
bias = torch.zeros(3, requires_grad=True)
x, y = torch.randn(20, 5), torch.randint(0, 3, (20,))
optimizer_rate = 0.5
loss = torch.nn.functional.cross_entropy(x @ weight + bias, y)
loss.backward()
print("loss", loss.item(), "grad", weight.grad, "bias", bias.grad is not None)
