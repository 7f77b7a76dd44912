import torch
from torch import nn


class Cell(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.input, self.state = nn.Linear(inputs, 4 * hidden), nn.Linear(hidden, 4 * hidden)

    def forward(self, x, h, c):
        i, f, g, o = (self.input(x) + self.state(h)).chunk(4, dim=-1)
        f.add_(1.0)  # CAUSE
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c


torch.manual_seed(0)
cell = Cell(3, 5)
h = c = torch.zeros(2, 5)
for x in torch.randn(6, 2, 3):
    h, c = cell(x, h, c)
h.square().mean().backward()
