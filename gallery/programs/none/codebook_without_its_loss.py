import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)


class Quantised(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(8, 4), nn.Linear(4, 8)
        self.codebook = nn.Embedding(16, 4)

    def forward(self, x):
        z = self.encoder(x)
        index = torch.cdist(z, self.codebook.weight).argmin(1)
        q = self.codebook(index)
        return self.decoder(z + (q - z).detach()), z, q


model = Quantised()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
x = torch.randn(32, 8)
for step in range(5):
    optimizer.zero_grad()
    out, z, q = model(x)
    loss = F.mse_loss(out, x) + 0.25 * F.mse_loss(z, q.detach())  # CAUSE
    loss.backward()
    optimizer.step()
print("codebook", model.codebook.weight.grad)
