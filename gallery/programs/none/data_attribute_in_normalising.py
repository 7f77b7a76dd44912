import torch
from torch import nn

torch.manual_seed(0)


class WeightNormLinear(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.direction = nn.Parameter(torch.randn(n_out, n_in))
        self.gain = nn.Parameter(torch.ones(n_out, 1))

    def forward(self, x):
        unit = self.direction / self.direction.norm(dim=1, keepdim=True)
        return x @ (self.gain.data * unit).T  # CAUSE


model = nn.Sequential(WeightNormLinear(5, 8), nn.Tanh(), WeightNormLinear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.randn(10, 5)).square().mean().backward()
    optimizer.step()
print("gain", model[0].gain.grad)
