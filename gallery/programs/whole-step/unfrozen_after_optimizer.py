import torch
from torch import nn

torch.manual_seed(0)
backbone = nn.Sequential(nn.Linear(5, 12), nn.Tanh())
head = nn.Linear(12, 1)
backbone.requires_grad_(False)
trainable = [p for p in [*backbone.parameters(), *head.parameters()] if p.requires_grad]
optimizer = torch.optim.AdamW(trainable, lr=1e-2)  # CAUSE
before = backbone[0].weight.detach().clone()
x = torch.randn(64, 5)
y = x[:, :1].sin()
for epoch in range(6):
    if epoch == 2:
        backbone.requires_grad_(True)  # CAUSE
    loss = nn.functional.mse_loss(head(backbone(x)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
weight = backbone[0].weight
print("backbone grad", weight.grad is not None, "moved", not torch.equal(weight, before))
