import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
trunk = nn.Sequential(
    nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()
)
heads = nn.ModuleDict({f"task{i}": nn.Linear(64, i + 2) for i in range(6)})
optimizer = torch.optim.AdamW([*trunk.parameters(), *heads.parameters()], lr=1e-3)
ran = 0


def count(grad):
    global ran
    ran += 1


for _ in range(4):
    ran = 0
    x = torch.randn(32, 16)
    targets = {name: torch.randint(head.out_features, (32,)) for name, head in heads.items()}
    optimizer.zero_grad()
    features = trunk(x)
    handle = trunk[0].weight.register_hook(count)
    for name, head in heads.items():
        loss = F.cross_entropy(head(features), targets[name])
        loss.backward(retain_graph=True)  # CAUSE
    handle.remove()
    optimizer.step()
print("trunk ran", ran, "times")
