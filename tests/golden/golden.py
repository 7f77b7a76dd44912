"""The program of the golden traces; the files of earlier formats stay as they are.

cd tests/golden && python -m agviz run --check-forward --values full --repro nonfinite \
    -o format-N.agviz golden.py && gzip -9n format-N.agviz
"""

import torch
from torch import Tensor, nn


class Distance(nn.Module):
    """How far two points are apart."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(3, 4)
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        differences = self.embed(x) - self.embed(y)
        squares = differences.square().sum(-1)
        return squares.sqrt()


torch.manual_seed(0)
model = Distance()
optimizer = torch.optim.SGD(model.parameters(), 0.01)
x = torch.randn(5, 3)
for step in range(3):
    y = torch.randn(5, 3)
    if step == 2:
        y[2] = x[2]
    optimizer.zero_grad()
    distance = model(x, y)
    distance.register_hook(lambda gradient: gradient * 1)
    distance.mean().backward()
    optimizer.step()
