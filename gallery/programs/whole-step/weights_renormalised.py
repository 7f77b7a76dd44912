import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
proto = nn.Linear(8, 4, bias=False)
with torch.no_grad():
    proto.weight[2] = 0
optimizer = torch.optim.SGD(proto.parameters(), lr=0.05)
x = torch.randn(32, 8)
y = torch.randint(2, (32,))
for step in range(6):
    optimizer.zero_grad()
    out = proto(x)[:, [0, 1, 3]]
    loss = F.cross_entropy(out, y)
    loss.backward()
    optimizer.step()
    if step == 3:
        with torch.no_grad():
            proto.weight.div_(proto.weight.norm(dim=1, keepdim=True))  # CAUSE
print("weights", proto.weight.isnan().sum())
