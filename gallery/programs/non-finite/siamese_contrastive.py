import torch
from torch import nn

torch.manual_seed(0)


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, x):
        return self.net(x)


def contrastive(a, b, same, margin=1.0):
    distance = (a - b).pow(2).sum(dim=1).sqrt()  # CAUSE
    pull = same * distance.pow(2)
    push = (1 - same) * (margin - distance).clamp(min=0).pow(2)
    return (pull + push).mean()


model = Embedder()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
left = torch.randn(12, 16)
right = torch.randn(12, 16)
right[5] = left[5]  # a duplicate in the data set
same = torch.zeros(12)
same[5] = 1.0

optimizer.zero_grad()
loss = contrastive(model(left), model(right), same)
loss.backward()
print("loss", loss.item())
print("grad is finite:", bool(model.net[0].weight.grad.isfinite().all()))
optimizer.step()
