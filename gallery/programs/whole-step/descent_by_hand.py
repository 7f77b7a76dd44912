import torch

torch.manual_seed(0)
x = torch.randn(50, 4)
y = x @ torch.tensor([1.0, -2.0, 0.5, 0.0]) + 0.3
w = torch.zeros(4, requires_grad=True)
b = torch.zeros(1, requires_grad=True)
for step in range(5):
    loss = (x @ w + b - y).square().mean()
    loss.backward(retain_graph=True)
    w = w - 0.1 * w.grad  # CAUSE
    b = b - 0.1 * b.grad  # CAUSE
