import torch
from torch import nn

torch.manual_seed(0)
tagger = nn.Sequential(nn.Embedding(30, 8), nn.Linear(8, 5))
optimizer = torch.optim.Adam(tagger.parameters())
words = torch.randint(30, (4, 7))
tags = torch.randint(5, (4, 7))
tags[:, 4:] = -100
tags[2] = -100
for _ in range(2):
    loss = nn.functional.cross_entropy(tagger(words).flatten(0, 1), tags.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("loss", loss.item())
