import warnings

import torch

warnings.filterwarnings("ignore")
torch.manual_seed(0)
scale = torch.full((3,), 0.1, requires_grad=True).to(torch.float64)  # CAUSE
shift = torch.zeros(3, requires_grad=True, dtype=torch.float64)
x = torch.randn(20, 3, dtype=torch.float64)
y = 2 * x + 1
for _ in range(3):
    loss = (x * scale + shift - y).square().mean()
    loss.backward(retain_graph=True)
    with torch.no_grad():
        shift -= 0.1 * shift.grad
        shift.grad = None
print("scale.grad", scale.grad)
