import torch
from torch import nn

torch.manual_seed(0)
tagger = nn.Sequential(nn.Embedding(50, 8), nn.Linear(8, 5))
optimizer = torch.optim.Adam(tagger.parameters())
words = torch.randint(50, (3, 7))
tags = torch.full((3, 7), -100)  # the sub-word alignment found no label
for _ in range(2):
    scores = tagger(words)
    scores, labels = scores.flatten(0, 1), tags.flatten()
    loss = nn.functional.cross_entropy(scores, labels, reduction="sum")  # CAUSE
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
print("grad", tagger[1].weight.grad.abs().max().item())
