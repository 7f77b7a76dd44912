"""The vectors of words are written to their sentence, of which the last one stays.

finding: rows replaced
"""

import torch
from torch import nn


def program() -> nn.Module:
    embed, head = nn.Embedding(30, 8), nn.Linear(8, 2)
    parts = nn.ModuleList([embed, head])
    optimizer = torch.optim.SGD(parts.parameters(), lr=0.1)
    words, owner = torch.randint(30, (60,)), torch.arange(60) // 6
    labels = torch.arange(10) % 2
    for _ in range(8):
        vectors = embed(words)
        index = owner[:, None].expand_as(vectors)
        sentences = torch.zeros(10, 8).scatter(0, index, vectors)  # cause
        loss = nn.functional.cross_entropy(head(sentences), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return parts
