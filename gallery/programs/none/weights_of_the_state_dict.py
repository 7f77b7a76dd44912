import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class TiedAutoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(20, 6)
        self.scale = nn.Parameter(torch.ones(20))

    def forward(self, x):
        weights = self.encoder.state_dict()  # CAUSE
        code = torch.tanh(F.linear(x, weights["weight"], weights["bias"]))  # CAUSE
        return F.linear(code, weights["weight"].T) * self.scale


model = TiedAutoencoder()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(5):
    x = torch.randn(32, 20)
    loss = F.mse_loss(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("encoder", model.encoder.weight.grad)
