"""A recurrent net with an orthogonal transition; the parametrisation is cached for speed."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import orthogonal

torch.manual_seed(0)


class OrthoRNN(nn.Module):
    def __init__(self, inputs=4, hidden=16):
        super().__init__()
        self.inp = nn.Linear(inputs, hidden)
        self.rec = orthogonal(nn.Linear(hidden, hidden, bias=False))
        self.out = nn.Linear(hidden, 2)

    def forward(self, x):
        h = x.new_zeros(x.shape[0], 16)
        for t in range(x.shape[1]):
            h = torch.tanh(self.inp(x[:, t]) + self.rec(h))
        return self.out(h)


model = OrthoRNN()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
data = [(torch.randn(8, 10, 4), torch.randint(0, 2, (8,))) for _ in range(4)]
with parametrize.cached():  # CAUSE
    for step, (x, y) in enumerate(data):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item())
