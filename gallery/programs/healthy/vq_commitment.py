import torch
from torch import nn

torch.manual_seed(0)
enc, dec, book = nn.Linear(6, 3), nn.Linear(3, 6), nn.Embedding(4, 3)
optimizer = torch.optim.Adam([*enc.parameters(), *dec.parameters(), *book.parameters()])
for _ in range(3):
    x = torch.randn(32, 6)
    z = enc(x)
    code = book(torch.cdist(z, book.weight).argmin(-1))
    through = z + (code - z).detach()
    loss = (dec(through) - x).square().mean()
    loss = loss + (code - z.detach()).square().mean() + 0.25 * (z - code.detach()).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(
    "all have gradients", all(p.grad is not None for m in (enc, dec, book) for p in m.parameters())
)
