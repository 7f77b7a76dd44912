"""A character-level transformer language model that learns Python from the standard library."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 # torch's own spelling

from agviz.demo.subject import PaddedNorm, Subject
from agviz.errors import AgvizError

CONTEXT = 64
BATCH = 12
WIDTH = 96
HEADS = 4
LAYERS = 4
CORPUS_CHARACTERS = 1_000_000


def corpus() -> str:
    """Source text of this machine's standard library, printable ASCII only."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    text = ""
    for path in sorted(folder.glob("*.py")):
        text += path.read_text(encoding="utf-8", errors="ignore")
        if len(text) >= CORPUS_CHARACTERS:
            break
    text = "".join(c for c in text[:CORPUS_CHARACTERS] if c == "\n" or " " <= c <= "~")
    if len(text) < 100 * CONTEXT:
        raise AgvizError(
            f"there is no source of the standard library in {folder} to learn from; "
            "try another model: agviz demo --model conv"
        )
    return text


class Attention(nn.Module):
    """Causal self-attention with several heads."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Mix the positions of ``x``, of shape (batch, time, width)."""
        batch, time, width = x.shape
        qkv = self.qkv(x).view(batch, time, 3, HEADS, width // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        projected: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, time, width))
        return projected


class Block(nn.Module):
    """One layer: attention and a two-layer perceptron, each normalised first and added."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.norm2 = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Transform ``x``, of shape (batch, time, width)."""
        x = x + self.attention(self.norm1(x))
        expanded: Tensor = self.mlp(self.norm2(x))
        return x + expanded


class CharLM(nn.Module):
    """Predicts the next character at every position."""

    def __init__(self, vocabulary: int, planted: PaddedNorm | None) -> None:
        super().__init__()
        self.token = nn.Embedding(vocabulary, WIDTH)
        self.position = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.planted = planted or nn.Identity()
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of shape (batch, time, vocabulary) for ``tokens`` of shape (batch, time)."""
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1]))
        for number, block in enumerate(self.blocks):
            if number == LAYERS // 2:
                x = self.planted(x)
            x = block(x)
        logits: Tensor = self.head(self.norm(x))
        return logits


def build(*, plant_nan: bool = False) -> Subject:
    """The language model and its text."""
    text = corpus()
    alphabet = sorted(set(text))
    index = {character: number for number, character in enumerate(alphabet)}
    data = torch.tensor([index[character] for character in text])
    planted = PaddedNorm() if plant_nan else None
    model = CharLM(len(alphabet), planted)

    def batches(step: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(step)
        starts = torch.randint(len(data) - CONTEXT - 1, (BATCH, 1), generator=generator)
        positions = starts + torch.arange(CONTEXT)
        return data[positions], data[positions + 1]

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    @torch.no_grad()
    def sample() -> str:
        generator = torch.Generator().manual_seed(0)
        tokens = torch.tensor([[index[c] for c in "def "]])
        for _ in range(120):
            probabilities = (model(tokens[:, -CONTEXT:])[:, -1] / 0.8).softmax(-1)
            next_token = torch.multinomial(probabilities, 1, generator=generator)
            tokens = torch.cat([tokens, next_token], dim=1)
        return "".join(alphabet[token] for token in tokens[0].tolist())

    return Subject(
        title=f"character-level transformer on {len(data):,} characters of the standard library",
        model=model,
        batches=batches,
        loss=loss,
        halves=(
            [model.token, model.position, *model.blocks[: LAYERS // 2]],
            [model.planted, *model.blocks[LAYERS // 2 :], model.norm, model.head],
        ),
        planted=planted,
        steps=300,
        learning_rate=2e-3,
        sample=sample,
    )
