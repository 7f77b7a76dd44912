import torch
from torch import nn

torch.manual_seed(0)


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(9, 1)
        self.norm = nn.LayerNorm(1)
        self.head = nn.Linear(1, 1)

    def forward(self, x):
        return self.head(self.norm(self.embed(x)))  # CAUSE


model = Scorer()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(3):
    x = torch.randn(20, 9)
    loss = nn.functional.mse_loss(model(x), x[:, :1])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("embed", model.embed.weight.grad.norm().item(), "head", model.head.bias.grad.norm().item())
