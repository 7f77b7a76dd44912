import torch
from torch import nn

torch.manual_seed(0)
scorer = nn.Linear(5, 1)
optimizer = torch.optim.SGD(scorer.parameters(), lr=0.1)
items = torch.randn(8, 6, 5)
present = torch.rand(8, 6) > 0.4
present[2] = False
target = torch.randn(8)
for step in range(2):
    optimizer.zero_grad()
    scores = scorer(items).squeeze(-1).masked_fill(~present, float("-inf"))
    pooled = torch.logsumexp(scores, dim=1)  # CAUSE
    has_any = present.any(1).float()
    loss = ((pooled - target) * has_any).square().mean()  # CAUSE
    loss.backward()
    optimizer.step()
print("loss", loss.item())
