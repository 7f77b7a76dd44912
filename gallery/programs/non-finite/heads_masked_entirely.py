import torch
from torch import nn

torch.manual_seed(0)


class Probe(nn.Module):
    """Turns heads off by a mask, to see what each is good for."""

    def __init__(self, heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(6, heads, batch_first=True)
        self.off = torch.zeros(heads, dtype=torch.bool)
        self.head = nn.Linear(6, 3)

    def forward(self, x):
        n = x.shape[1]
        mask = self.off.view(-1, 1, 1).expand(-1, n, n).repeat(x.shape[0], 1, 1)
        y, _ = self.attention(x, x, x, attn_mask=mask)  # CAUSE
        return self.head(x + y).mean(1)


model = Probe(3)
model.off[2] = True
loss = nn.functional.cross_entropy(model(torch.randn(2, 5, 6)), torch.tensor([1, 2]))
loss.backward()
print("nan parameters:", sum(bool(p.grad.isnan().any()) for p in model.parameters()))
