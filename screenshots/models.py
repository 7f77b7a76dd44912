"""The models whose backward passes are drawn: what people train, made narrow."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Unrolled(nn.Module):
    """An LSTM cell, 50 steps in a row."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(16, 32)
        self.head = nn.Linear(32, 4)

    def forward(self, steps: Tensor) -> Tensor:
        """The loss of one sequence of shape (50, batch, 16)."""
        state = torch.zeros(2, 32), torch.zeros(2, 32)
        for step in steps:
            state = self.cell(step, state)
        loss: Tensor = self.head(state[0]).square().mean()
        return loss


class Bottleneck(nn.Module):
    """A block of ResNet-50: narrow, 3x3, wide, beside a shortcut."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        after = 4 * width
        self.conv1 = nn.Conv2d(before, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, after, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(after)
        self.downsample: nn.Module = nn.Identity()
        if stride > 1 or before != after:
            self.downsample = nn.Sequential(
                nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Transform ``x``, of shape (batch, channels, height, width)."""
        y = self.bn1(self.conv1(x)).relu()
        y = self.bn2(self.conv2(y)).relu()
        added: Tensor = self.bn3(self.conv3(y)) + self.downsample(x)
        return added.relu()


class ResNet50(nn.Module):
    """ResNet-50 with an eighth of its channels."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        before, layers = 8, []
        for number, blocks in enumerate((3, 4, 6, 3)):
            width = 8 << number
            strides = [2 if number else 1, *[1] * (blocks - 1)]
            stage = []
            for stride in strides:
                stage.append(Bottleneck(before, width, stride))
                before = 4 * width
            layers.append(nn.Sequential(*stage))
        self.layer1, self.layer2, self.layer3, self.layer4 = layers
        self.fc = nn.Linear(before, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Logits of shape (batch, 10) for images of shape (batch, 3, height, width)."""
        x = nn.functional.max_pool2d(self.bn1(self.conv1(images)).relu(), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(x.mean((2, 3)))
        return logits


class Layer(nn.Module):
    """A layer of a GPT: causal attention and a perceptron, normalised first and added."""

    def __init__(self, width: int, heads: int, *, normalised: bool = True) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.ln_2: nn.Module = nn.LayerNorm(width) if normalised else nn.Identity()
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Transform ``x``, of shape (batch, time, width)."""
        batch, time, width = x.shape
        qkv = self.qkv(self.ln_1(x)).view(batch, time, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(mixed.transpose(1, 2).reshape(batch, time, width))
        added: Tensor = x + self.mlp(self.ln_2(x))
        return added


class GPT(nn.Module):
    """A language model of ``layers`` equal layers."""

    def __init__(self, layers: int, *, normalised: bool = True) -> None:
        super().__init__()
        self.wte = nn.Embedding(50, 32)
        self.wpe = nn.Embedding(16, 32)
        self.h = nn.Sequential(*(Layer(32, 4, normalised=normalised) for _ in range(layers)))
        self.ln_f = nn.LayerNorm(32)
        self.lm_head = nn.Linear(32, 50, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """The loss of predicting ``tokens``, of shape (batch, 17), each from those before it."""
        x = self.wte(tokens[:, :-1]) + self.wpe(torch.arange(16))
        logits = self.lm_head(self.ln_f(self.h(x)))
        return nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
