"""Groups are collected by kinds of layers, which miss what the model holds itself.

finding: not held
"""

import torch
from torch import Tensor, nn


class Reader(nn.Module):
    """Places are added to what a layer makes of each letter."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.zeros(7, 6))
        self.letters, self.out = nn.Linear(4, 6), nn.Linear(6, 2)
        self.norm = nn.LayerNorm(6)

    def forward(self, x: Tensor) -> Tensor:
        read: Tensor = self.out(self.norm(self.letters(x) + self.places).mean(1))
        return read


def program() -> object:
    model = Reader()
    plain: list[Tensor] = []
    decayed: list[Tensor] = []
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            decayed.append(layer.weight)
            plain.append(layer.bias)
        elif isinstance(layer, nn.LayerNorm):
            plain += [layer.weight, layer.bias]
    optimizer = torch.optim.AdamW([{"params": plain}, {"params": decayed}], lr=1e-2)  # cause
    for _ in range(8):
        x = torch.randn(10, 7, 4)
        optimizer.zero_grad()
        (model(x) - x[:, 0, :2]).square().mean().backward()
        optimizer.step()
    return model
