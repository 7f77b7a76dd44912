import torch
from torch import nn

torch.manual_seed(0)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.ones(4, requires_grad=True)  # CAUSE
        self.out = nn.Linear(4, 1)

    def forward(self, x):
        return self.out(x * self.scale)


model = Scaled()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)  # CAUSE
for _ in range(4):
    x = torch.randn(10, 4)
    loss = (model(x) - x[:, :1]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
held = [p for group in optimizer.param_groups for p in group["params"]]
print(
    "scale grad", model.scale.grad is not None, "in optimizer", any(p is model.scale for p in held)
)
