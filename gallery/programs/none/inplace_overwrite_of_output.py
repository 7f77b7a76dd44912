import torch
from torch import nn

torch.manual_seed(0)


class TwoPath(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.local = nn.Conv1d(width, width, 3, padding=1)
        self.wide = nn.Linear(width, width)

    def forward(self, x):
        buffer = self.local(x.transpose(1, 2)).transpose(1, 2)
        buffer.zero_()  # CAUSE
        buffer = buffer + self.wide(x)
        return buffer


model = TwoPath(4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(2, 9, 4)).square().mean().backward()
optimizer.step()
grad = model.local.weight.grad
print("local grad:", grad if grad is None else grad.abs().sum())
