import torch
from torch import nn
from torch.nn import functional as F


class Contrast(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, width))
        self.register_buffer("bank", torch.empty(0, width))

    @torch.no_grad()
    def remember(self, keys):
        self.bank = torch.cat([self.bank, keys])  # CAUSE

    def forward(self, a, b):
        query = F.normalize(self.encoder(a), dim=1)
        with torch.no_grad():
            keys = F.normalize(self.encoder(b), dim=1)
        positive = (query * keys).sum(1, keepdim=True)
        logits = torch.cat([positive, query @ self.bank.T], 1) / 0.2
        self.remember(keys)
        return F.cross_entropy(logits, torch.zeros(len(a), dtype=torch.long))


torch.manual_seed(0)
model = Contrast(16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
sizes = []
for _ in range(10):
    x = torch.randn(16, 20)
    loss = model(x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    sizes.append(len(model.bank))
print("negatives:", sizes)
