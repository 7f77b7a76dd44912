import torch
from torch import nn

torch.manual_seed(0)


class SparseFeatures(nn.Module):
    def __init__(self, width, features):
        super().__init__()
        self.encode = nn.Linear(width, features)
        self.decode = nn.Linear(features, width)

    def forward(self, x):
        scores = self.encode(x)
        kept = scores.topk(4, dim=-1)
        code = torch.zeros_like(scores).scatter(-1, kept.indices, torch.relu(kept.values))
        gate = torch.sigmoid(12 * (code - 0.1))
        return self.decode(code * gate), code


model = SparseFeatures(16, 128)
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step in range(20):
    x = torch.randn(64, 4) @ torch.ones(4, 16).cumsum(1).sin()
    out, code = model(x)
    loss = (out - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"zeros {(code == 0).float().mean():.2f}")
