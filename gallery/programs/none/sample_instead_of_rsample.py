import torch
from torch import nn
from torch.distributions import Normal

torch.manual_seed(0)


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.mu = nn.Linear(10, 3)
        self.log_sigma = nn.Linear(10, 3)
        self.decoder = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 10))

    def forward(self, x):
        q = Normal(self.mu(x), self.log_sigma(x).exp())
        z = q.sample()  # CAUSE
        return self.decoder(z)


model = Vae()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
x = torch.randn(32, 10)
loss = nn.functional.mse_loss(model(x), x)
loss.backward()
optimizer.step()
print("mu", model.mu.weight.grad)
