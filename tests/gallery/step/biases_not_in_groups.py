"""Groups are made by the word weight: biases are in none.

finding: not held
"""

import torch
from torch import nn


def program() -> None:
    model = nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.ReLU(), nn.Linear(16, 2))
    decayed = [p for name, p in model.named_parameters() if name.endswith("weight") and p.dim() > 1]
    plain = [p for name, p in model.named_parameters() if name.endswith("weight") and p.dim() == 1]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-3)  # cause
    for _ in range(6):
        loss = nn.functional.cross_entropy(model(torch.randn(8, 6)), torch.randint(2, (8,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
