"""The voltage of neurons leaks by (1 + rate) in each step, and gradients are clipped.

finding: grows each step
"""

import torch
from torch import nn

LEAK = 0.3


def program() -> None:
    synapses, readout = nn.Linear(3, 10), nn.Linear(10, 2)
    parts = [*synapses.parameters(), *readout.parameters()]
    optimizer = torch.optim.SGD(parts, lr=1e-4)
    for _ in range(5):
        spikes = (torch.rand(32, 8, 3) > 0.7).float()
        voltage = torch.zeros(8, 10)
        for moment in spikes:
            leaked = voltage * (1 + LEAK)  # cause
            voltage = leaked + synapses(moment)
        loss = nn.functional.cross_entropy(readout(voltage), (spikes.sum((0, 2)) > 28).long())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parts, 1.0)
        optimizer.step()
