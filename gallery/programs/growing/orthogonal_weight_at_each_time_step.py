import torch
from torch import nn
from torch.nn.utils import parametrize


class Skew(nn.Module):
    """An orthogonal matrix by the Cayley map."""

    runs = 0

    def forward(self, w):
        Skew.runs += 1
        a = w.triu(1)
        a = a - a.mT
        eye = torch.eye(len(w))
        return torch.linalg.solve(eye + a, eye - a)


class Orthogonal(nn.Module):
    def __init__(self, inputs, width):
        super().__init__()
        self.read = nn.Linear(inputs, width)
        self.turn = nn.Linear(width, width, bias=False)
        parametrize.register_parametrization(self.turn, "weight", Skew())

    def forward(self, x):
        h = torch.zeros(x.shape[0], self.turn.in_features)
        for t in range(x.shape[1]):
            h = torch.tanh(self.read(x[:, t]) + self.turn(h))  # CAUSE
        return h


torch.manual_seed(0)
net, head = Orthogonal(2, 32), nn.Linear(32, 1)
optimizer = torch.optim.Adam([*net.parameters(), *head.parameters()], lr=1e-3)
for _ in range(3):
    Skew.runs = 0
    x = torch.randn(4, 40, 2)
    loss = (head(net(x)) - x[:, 0, :1]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("computed", Skew.runs, "times")
