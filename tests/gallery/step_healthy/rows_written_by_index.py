"""Rows are added where indices meet, are the same where they do, or none meet."""

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
        sums = torch.zeros(10, 8).scatter_add(0, index, vectors)
        sums = sums + torch.zeros(10, 8).index_put((owner,), vectors, accumulate=True)
        largest = torch.zeros(10, 8).scatter_reduce(0, index, vectors, reduce="amax")
        copied = torch.zeros(10, 8)
        copied[owner] = torch.tanh(sums)[owner]
        placed = torch.zeros(80, 8)
        placed[words.argsort().argsort()] = vectors
        sums = sums + largest + copied + placed.mean(0)
        loss = nn.functional.cross_entropy(head(sums), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return parts
