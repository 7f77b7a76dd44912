import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.Linear(12, 6)
x = torch.randn(10, 12)
z = encoder(x)
length = z.square().sum(1, keepdim=True).sqrt()
unit = z / length
support = length[:5]
support -= length[:5].mean()  # CAUSE
loss = (unit[5:] @ unit[:5].T).logsumexp(1).mean() + support.abs().mean()
loss.backward()
