import torch
from torch import nn

torch.manual_seed(0)
backbone = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
backbone.requires_grad_(False).eval()
head = nn.Linear(8, 4)
optimizer = torch.optim.Adam(head.parameters(), lr=1e-2)
before = head.weight.detach().clone()
for _ in range(3):
    loss = nn.functional.cross_entropy(
        head(backbone(torch.randn(4, 3, 10, 10))), torch.randint(4, (4,))
    )
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("head moved", not torch.equal(before, head.weight))
