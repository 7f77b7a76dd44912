"""A logarithm that is clamped from below, and a cross-entropy of probabilities 0 and 1."""

import torch
from torch import nn


def program() -> None:
    """A training step with scores that are very sure."""
    score = nn.Linear(4, 3)
    p = torch.softmax(score(torch.randn(6, 4)) * 300, -1)
    entropy = -(p * p.clamp(min=1e-9).log()).sum(-1)
    loss = nn.functional.binary_cross_entropy(p, torch.ones(6, 3))
    (entropy.mean() + loss).backward()


if __name__ == "__main__":
    program()
