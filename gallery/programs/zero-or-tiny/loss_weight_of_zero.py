import torch
from torch import nn

torch.manual_seed(0)
WARMUP = 1000


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean, self.logvar, self.decode = nn.Linear(6, 2), nn.Linear(6, 2), nn.Linear(2, 6)

    def forward(self, x):
        mean, logvar = self.mean(x), self.logvar(x)
        return self.decode(mean), (mean.square() + logvar.exp() - 1 - logvar).mean()


model = Vae()
optimizer = torch.optim.Adam(model.parameters())
for step in range(5):
    x = torch.randn(12, 6)
    out, kl = model(x)
    beta = step // WARMUP
    loss = nn.functional.mse_loss(out, x) + beta * kl  # CAUSE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("logvar grad", model.logvar.weight.grad.abs().max().item())
