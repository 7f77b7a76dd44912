import torch
from torch import nn

torch.manual_seed(0)
embedding = nn.Embedding(10, 4, max_norm=1.0)
project = nn.Parameter(torch.randn(4, 4))
words = torch.tensor([1, 4, 4, 7])
context = torch.tensor([2, 5, 9, 1])
table = embedding.weight @ project
optimizer = torch.optim.SGD([*embedding.parameters(), project], lr=0.1)

left = embedding(words)  # CAUSE
right = table[context]
loss = -nn.functional.logsigmoid((left * right).sum(-1)).mean()
loss.backward()
optimizer.step()
