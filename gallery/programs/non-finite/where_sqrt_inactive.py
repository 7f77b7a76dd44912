import torch
from torch import nn

torch.manual_seed(0)


class SignedRoot(nn.Module):
    """Root above zero, identity below."""

    def forward(self, x):
        return torch.where(x > 0, torch.sqrt(x), x)  # CAUSE


model = nn.Sequential(nn.Linear(4, 16), SignedRoot(), nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
data = torch.randn(40, 4)
optimizer.zero_grad()
loss = (model(data) - data.sum(1, keepdim=True)).abs().mean()
loss.backward()
print("loss", loss.item())
print("nan in grad:", bool(model[0].weight.grad.isnan().any()))
