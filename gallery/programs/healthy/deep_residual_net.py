import torch
from torch import nn

torch.manual_seed(0)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, width)

    def forward(self, x):
        return x + 0.2 * self.linear(self.norm(x)).relu()


model = nn.Sequential(nn.Linear(6, 16), *(Residual(16) for _ in range(40)), nn.Linear(16, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(2):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(torch.randn(8, 6)), torch.randint(2, (8,))).backward()
    optimizer.step()
print("ratio", (model[0].weight.grad.norm() / model[-1].weight.grad.norm()).item())
