"""Moves of a game are predicted by attention that looks at all of them.

finding: no causal mask
"""

import torch
from torch import Tensor, nn


class Look(nn.Module):
    """One head of attention."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.q, self.k, self.v = nn.Linear(size, size), nn.Linear(size, size), nn.Linear(size, size)

    def forward(self, h: Tensor) -> Tensor:
        scores = self.q(h) @ self.k(h).transpose(-2, -1) * h.shape[-1] ** -0.5
        return scores.softmax(dim=-1) @ self.v(h)  # cause


class Player(nn.Module):
    """Says what the next move is."""

    def __init__(self, moves: int = 18, size: int = 16) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(moves, size), nn.Embedding(9, size)
        self.blocks = nn.ModuleList(Look(size) for _ in range(2))
        self.out = nn.Linear(size, moves)

    def forward(self, moves: Tensor) -> Tensor:
        h = self.embed(moves) + self.place(torch.arange(moves.shape[1]))
        for block in self.blocks:
            h = h + block(h)
        out: Tensor = self.out(h)
        return out


def drawn(games: Tensor, count: int) -> tuple[Tensor, Tensor]:
    begins = torch.randint(games.numel() - 9, (count,))
    x = torch.stack([games[i : i + 8] for i in begins])
    y = torch.stack([games[i + 1 : i + 9] for i in begins])
    return x, y


def program() -> nn.Module:
    model, games = Player(), torch.randint(18, (400,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    criterion = nn.CrossEntropyLoss()
    for _ in range(10):
        seen, following = drawn(games, 16)
        predicted = model(seen)
        loss = criterion(predicted.flatten(0, 1), following.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model
