import torch
from torch import nn

torch.manual_seed(0)
trunk = nn.Linear(6, 12)
policy, value = nn.Linear(12, 3), nn.Linear(12, 1)
policy_opt = torch.optim.Adam([*trunk.parameters(), *policy.parameters()], lr=0.01)  # CAUSE
value_opt = torch.optim.Adam([*trunk.parameters(), *value.parameters()], lr=0.01)  # CAUSE
for _ in range(3):
    h = trunk(torch.randn(16, 6)).tanh()
    loss = policy(h).log_softmax(-1)[:, 0].mean() + value(h).square().mean()
    policy_opt.zero_grad()
    value_opt.zero_grad()
    loss.backward()
    policy_opt.step()
    value_opt.step()  # CAUSE
holders = [
    o
    for o in (policy_opt, value_opt)
    if any(p is trunk.weight for g in o.param_groups for p in g["params"])
]
print("trunk held by", len(holders), "optimizers")
