"""A filter's gradient is reversed, as if the convolution had reversed the filter.

finding: reordered
"""

import torch
from torch import nn


def program() -> None:
    taps = nn.Parameter(torch.randn(1, 1, 9))
    taps.register_hook(lambda g: torch.flip(g, dims=[-1]).contiguous())  # cause
    optimizer = torch.optim.Adam([taps], lr=0.01)
    sound = torch.randn(8, 1, 60)
    wanted = torch.roll(sound, 2, -1)
    for _ in range(4):
        off = nn.functional.conv1d(sound, taps, padding=4) - wanted
        optimizer.zero_grad()
        off.square().mean().backward()
        optimizer.step()
