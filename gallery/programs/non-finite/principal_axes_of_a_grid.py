import torch
from torch import nn

torch.manual_seed(0)
corners = torch.tensor([[x, y, z] for x in (-1.0, 1.0) for y in (-1.0, 1.0) for z in (-1.0, 1.0)])


class Aligned(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))
        self.head = nn.Linear(24, 2)

    def forward(self, points):
        points = points * self.scale
        covariance = points.T @ points / len(points)
        _, axes = torch.linalg.eigh(covariance)  # CAUSE
        return self.head((points @ axes).flatten())


model = Aligned()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss = nn.functional.cross_entropy(model(corners), torch.tensor(1))
optimizer.zero_grad()
loss.backward()
print("loss", loss.item(), "scale.grad", model.scale.grad)
