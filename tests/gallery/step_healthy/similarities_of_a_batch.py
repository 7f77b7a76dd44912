"""Similarities of a batch with itself whose diagonal is left out, meant, or weighs values."""

import torch
from torch import Tensor, nn
from torch.nn import functional


def without_diagonal(codes: Tensor, positives: Tensor) -> Tensor:
    gram = codes @ codes.T / 0.2
    same = torch.eye(len(gram), dtype=torch.bool)
    filled = functional.cross_entropy(gram.masked_fill(same, -1e9), positives)
    chosen = gram[~same].view(len(gram), -1).logsumexp(1).mean()
    written = gram.clone()
    written.fill_diagonal_(float("-inf"))
    terms = torch.exp(gram)
    by_hand = terms.sum(1) - torch.exp(gram.diagonal())
    return filled + chosen + written.logsumexp(1).mean() + by_hand.log().mean()


def program() -> nn.Module:
    encoder = nn.Linear(6, 5)
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.05)
    x, positives = torch.randn(20, 6), torch.arange(20).roll(10)
    for _ in range(10):
        codes = functional.normalize(encoder(x + 0.1 * torch.randn_like(x)))
        noisy = functional.normalize(encoder(x + 0.1 * torch.randn_like(x)))
        gathered = (codes @ codes.T / 0.2).softmax(1) @ codes  # as in a block that is not local
        spread = functional.cross_entropy(codes @ codes.T / 0.2, torch.arange(20))
        pairs = functional.cross_entropy(codes @ noisy.T / 0.2, torch.arange(20))
        loss = without_diagonal(codes, positives) + gathered.square().mean() + spread + pairs
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return encoder
