import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 6, 3), nn.GroupNorm(2, 6), nn.SiLU(), nn.Flatten(), nn.Linear(216, 4)
)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(torch.randn(4, 1, 8, 8))
        loss = nn.functional.cross_entropy(logits, torch.randint(4, (4,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("finite", all(bool(p.grad.isfinite().all()) for p in model.parameters()))
