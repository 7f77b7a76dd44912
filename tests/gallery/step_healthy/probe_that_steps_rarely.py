"""A probe on detached features that adds up its gradients over six passes of the model."""

import torch
from torch import nn
from torch.nn import functional as F


def program() -> None:
    body, head, probe = nn.Linear(6, 8), nn.Linear(8, 3), nn.Linear(8, 2)
    for_model = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=1e-2)
    for_probe = torch.optim.Adam(probe.parameters(), lr=1e-2)
    for step in range(28):
        x = torch.randn(32, 6)
        labels, groups = (x[:, 0] > 0).long(), (x[:, 1] > 0).long()
        features = torch.tanh(body(x))
        probed = probe(features.detach())
        loss = F.cross_entropy(head(features), labels) + F.cross_entropy(probed, groups)
        for_model.zero_grad()
        loss.backward()
        for_model.step()
        if step % 6 == 5:
            for_probe.step()
            for_probe.zero_grad()
