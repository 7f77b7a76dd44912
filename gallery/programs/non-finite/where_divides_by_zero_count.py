import torch
from torch import nn

torch.manual_seed(0)
embedding = nn.Embedding(20, 6)
out = nn.Linear(6, 2)
bags = torch.randint(1, 20, (5, 7))
lengths = torch.tensor([7, 3, 0, 5, 1])
mask = torch.arange(7)[None] < lengths[:, None]

vectors = embedding(bags) * mask[..., None]
total = vectors.sum(1)
n = lengths[:, None].float()
mean = torch.where(n > 0, total / n, torch.zeros(6))  # CAUSE
loss = nn.functional.cross_entropy(out(mean), torch.tensor([0, 1, 0, 1, 1]))
loss.backward()
print("loss", loss.item())
print("embedding grad finite", bool(embedding.weight.grad.isfinite().all()))
