import torch
from torch import nn

torch.manual_seed(0)
base = nn.Linear(5, 5)
optimizer = torch.optim.Adam(base.parameters())
adapters, groups = nn.ModuleList(), []
for epoch in range(4):
    adapters.append(nn.Linear(5, 5, bias=False))  # CAUSE
    optimizer.add_param_group({"params": adapters[-1].parameters()})  # CAUSE
    x = torch.randn(8, 5)
    h = base(x)
    for adapter in adapters:
        h = h + adapter(h)
    optimizer.zero_grad()
    (h - x).square().mean().backward()
    optimizer.step()
    groups.append(len(optimizer.param_groups))
print("groups", groups)
