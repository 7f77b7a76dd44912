import torch
from torch import nn

torch.manual_seed(0)
gate = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(gate.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    load = gate(torch.randn(32, 8)).softmax(-1)
    usage = load.sum(-1)  # CAUSE
    loss = (usage - 0.25).square().mean()
    loss.backward()
    optimizer.step()
print("largest", max(p.grad.abs().max().item() for p in gate.parameters()))
