"""Next tokens by a recurrence beside an encoder, pieces that are shifted in the model, and more.

The encoder looks at all of another sequence; a layer attends over the channels of each time; a
masked word is predicted from both sides; groups of features look at each other.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional


class Captions(nn.Module):
    """Reads regions of a picture, and writes words by a recurrence."""

    def __init__(self) -> None:
        super().__init__()
        self.regions = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
        self.embed, self.write = nn.Embedding(20, 8), nn.GRU(8, 8, batch_first=True)
        self.out = nn.Linear(8, 20)

    def forward(self, picture: Tensor, words: Tensor) -> Tensor:
        first = self.regions(picture).mean(1)[None].contiguous()
        out: Tensor = self.out(self.write(self.embed(words), first)[0])
        return out


class Channels(nn.Module):
    """At each time, the channels look at each other."""

    def __init__(self) -> None:
        super().__init__()
        self.lift, self.look = nn.Linear(1, 8), nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 1)

    def forward(self, series: Tensor) -> Tensor:
        h = self.lift(series.flatten(0, 1).unsqueeze(-1))
        out: Tensor = self.head(h + self.look(h, h, h)[0]).view(series.shape)
        return out


class Shifts(nn.Module):
    """Is given what it is to predict, and moves it by one place."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.read = nn.Embedding(21, 8), nn.LSTM(8, 8, batch_first=True)
        self.out = nn.Linear(8, 20)

    def forward(self, words: Tensor) -> Tensor:
        h = functional.pad(self.embed(words)[:, :-1], (0, 0, 1, 0))
        out: Tensor = self.out(self.read(h)[0])
        return out


class Groups(nn.Module):
    """Groups of features look at each other, in each place by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(12, 12) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        q, k, v = (f(x).view(b, n, 4, 3) for f in (self.q, self.k, self.v))
        return functional.scaled_dot_product_attention(q, k, v).flatten(2)


def program() -> list[nn.Module]:
    captions, channels, shifts, groups = Captions(), Channels(), Shifts(), Groups()
    models = [captions, channels, shifts, groups]
    optimizer = torch.optim.Adam([p for each in models for p in each.parameters()], lr=1e-3)
    words, pictures, series = (
        torch.randint(20, (24, 9)),
        torch.randn(24, 5, 8),
        torch.randn(24, 9, 4),
    )
    for i in range(6):
        picked = torch.randint(24, (8,))
        some, own = words[picked], pictures[picked]
        logits = captions(own, some[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), some[:, 1:].flatten())
        loads = series[picked]
        loss = loss + functional.mse_loss(channels(loads[:, :-1]), loads[:, 1:])
        loss = loss + functional.cross_entropy(shifts(some).flatten(0, 1), some.flatten())
        x = torch.randn(8, 5, 12)
        loss = loss + functional.mse_loss(groups(x), x.roll(i, 1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return models
