import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(5, 10), nn.Tanh(), nn.Linear(10, 3))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
x = torch.randn(16, 5)
target = torch.eye(3)[torch.randint(3, (16,))]
SCALE = 1024.0
for step in range(8):
    optimizer.zero_grad()
    p = net(x).softmax(1)
    keep = p * (p > 0.4)
    loss = -(target * keep.log()).sum(1).mean()  # CAUSE
    (loss * SCALE).backward()
    grads = [w.grad / SCALE for w in net.parameters()]
    if all(g.isfinite().all() for g in grads):
        for w, g in zip(net.parameters(), grads):
            w.grad = g
        optimizer.step()
print("finite", all(g.isfinite().all() for g in grads))
