import torch
from torch import nn

torch.manual_seed(0)


class Vae(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode = nn.Linear(12, 4)
        self.decode = nn.Linear(2, 12)

    def forward(self, x):
        mean, logvar = self.encode(x).chunk(2, -1)
        z = mean + torch.exp(0.5 * logvar) * torch.randn_like(mean)  # CAUSE
        kl = 0.5 * (mean**2 + torch.exp(logvar) - 1 - logvar).sum(-1)  # CAUSE
        return self.decode(z), kl


model = Vae()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
x = torch.rand(8, 12) * 255  # pixels, not scaled
with torch.no_grad():
    model.encode.weight[2:].abs_()
out, kl = model(x)
loss = nn.functional.mse_loss(out, x / 255) + kl.mean()
loss.backward()
optimizer.step()
print("loss", loss.item())
