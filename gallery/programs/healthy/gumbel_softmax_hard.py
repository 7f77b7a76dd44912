import torch
from torch import nn

torch.manual_seed(0)
encoder, book = nn.Linear(8, 16), nn.Embedding(16, 8)
optimizer = torch.optim.Adam([*encoder.parameters(), *book.parameters()], lr=1e-2)
for _ in range(3):
    x = torch.randn(20, 8)
    pick = nn.functional.gumbel_softmax(encoder(x), tau=1.0, hard=True)
    loss = (pick @ book.weight - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("logits grad", bool(encoder.weight.grad.abs().max() > 1e-6))
