"""An average with its buffers, one whose statistics are estimated, and a network that stays."""

import copy

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, update_bn


def made() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))


def program() -> object:
    model, fixed = made(), made().eval().requires_grad_(False)
    average, swa = copy.deepcopy(model).eval().requires_grad_(False), AveragedModel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(12):
        x = torch.randn(16, 4) + 3
        optimizer.zero_grad()
        (model(x) - fixed(x)).square().mean().backward()
        optimizer.step()
        swa.update_parameters(model)
        with torch.no_grad():
            for mine, theirs in zip(average.parameters(), model.parameters(), strict=True):
                mine.lerp_(theirs, 0.1)
            for name, buffer in average.named_buffers():
                buffer.copy_(model.get_buffer(name))
    update_bn([torch.randn(16, 4) + 3 for _ in range(3)], swa)
    with torch.no_grad():
        for each in (average, swa.eval()):
            each(torch.randn(16, 4) + 3)
    return average, swa
