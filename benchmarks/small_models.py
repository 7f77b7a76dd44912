"""Small real models: what a pass costs where its nodes have little to do. Imports torch only."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Model(NamedTuple):
    """A training step: one or several losses, each with a backward of its own."""

    title: str
    losses: Sequence[Callable[[], Tensor]]
    """Each runs a forward and returns the scalar to differentiate."""
    leaves: Sequence[Tensor]


def mlp() -> Model:
    """A deep stack of tiny layers: 60 x (Linear 8x8, Tanh), batch 4."""
    layers = [layer for _ in range(60) for layer in (nn.Linear(8, 8), nn.Tanh())]
    model = nn.Sequential(*layers)
    batch = torch.randn(4, 8)
    title = "MLP, 60 x (Linear 8x8, Tanh)"
    return Model(title, [lambda: model(batch).pow(2).mean()], list(model.parameters()))


def lstm() -> Model:
    """An LSTM cell in a loop: width 16, 20 steps, batch 4."""
    cell = nn.LSTMCell(8, 16)
    steps = torch.randn(20, 4, 8)

    def loss() -> Tensor:
        state = torch.zeros(4, 16), torch.zeros(4, 16)
        for step in steps:
            state = cell(step, state)
        return state[0].pow(2).mean()

    return Model("LSTM cell, 20 steps of width 16", [loss], list(cell.parameters()))


class _Messages(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.of_neighbour = nn.Linear(2 * width, width)
        self.update = nn.Linear(2 * width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, nodes: Tensor, source: Tensor, target: Tensor) -> Tensor:
        pairs = torch.cat([nodes[source], nodes.index_select(0, target)], -1)
        messages = torch.relu(self.of_neighbour(pairs))
        received = torch.zeros_like(nodes).index_add(0, target, messages)
        return torch.relu(self.norm(nodes + self.update(torch.cat([nodes, received], -1))))


def gnn() -> Model:
    """Message passing: 8 layers of width 16 on 50 nodes and 200 edges, and an attention pool."""
    layers = nn.ModuleList(_Messages(16) for _ in range(8))
    gate, head = nn.Linear(16, 1), nn.Linear(16, 3)
    source, target = torch.randint(50, (2, 200))
    features = torch.randn(50, 16)

    def loss() -> Tensor:
        nodes = features
        for layer in layers:
            nodes = layer(nodes, source, target)
        weights = gate(nodes).softmax(0)
        pooled = (weights * nodes).sum(0)
        best = nodes.gather(0, nodes.argmax(0, keepdim=True)).squeeze(0)
        return nn.functional.cross_entropy(head(pooled + best)[None], torch.zeros(1).long())

    leaves = [*layers.parameters(), *gate.parameters(), *head.parameters()]
    return Model("GNN, 8 layers on 200 edges", [loss], leaves)


def gan() -> Model:
    """One step of a GAN, batch 8: the critic's backward, then the generator's."""
    generator = nn.Sequential(
        nn.Linear(4, 16), nn.BatchNorm1d(16), nn.LeakyReLU(0.2),
        nn.Linear(16, 16), nn.BatchNorm1d(16), nn.LeakyReLU(0.2),
        nn.Linear(16, 2),
    )  # fmt: skip
    critic = nn.Sequential(
        nn.Linear(2, 16), nn.LeakyReLU(0.2),
        nn.Linear(16, 16), nn.LeakyReLU(0.2), nn.Dropout(0.1),
        nn.Linear(16, 1),
    )  # fmt: skip
    judge = nn.BCEWithLogitsLoss()
    real, fake = torch.ones(8, 1), torch.zeros(8, 1)
    points, noise = torch.randn(8, 2), torch.randn(8, 4)

    def of_the_critic() -> Tensor:
        made = generator(noise).detach()
        loss: Tensor = judge(critic(points), real) + judge(critic(made), fake)
        return loss

    def of_the_generator() -> Tensor:
        loss: Tensor = judge(critic(generator(noise)), real)
        return loss

    leaves = [*generator.parameters(), *critic.parameters()]
    return Model("GAN step, width 16", [of_the_critic, of_the_generator], leaves)


SMALL: dict[str, Callable[[], Model]] = {"mlp": mlp, "lstm": lstm, "gnn": gnn, "gan": gan}
