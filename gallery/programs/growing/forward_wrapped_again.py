import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
casts = 0


def mixed(forward):
    def wrapped(x):
        global casts
        casts += 2
        return forward(x.bfloat16().float()).bfloat16().float()  # CAUSE

    return wrapped


counts = []
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(4):
    model.forward = mixed(model.forward)  # CAUSE
    casts = 0
    loss = nn.functional.cross_entropy(model(torch.randn(8, 4)), torch.randint(2, (8,)))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    counts.append(casts)
print("casts", counts)
