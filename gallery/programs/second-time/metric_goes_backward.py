import torch
from torch import nn

torch.manual_seed(0)
net = nn.Sequential(nn.Conv1d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 2))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)


def gradient_norm(loss):
    loss.backward()  # CAUSE
    return torch.stack([p.grad.norm() for p in net.parameters()]).norm().item()


for _ in range(2):
    loss = nn.functional.cross_entropy(net(torch.randn(4, 2, 8)), torch.randint(2, (4,)))
    optimizer.zero_grad()
    loss.backward()  # CAUSE
    print("norm", gradient_norm(loss))
    optimizer.step()
