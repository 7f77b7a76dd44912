import torch
from torch import nn
from torch.distributions import Normal

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 64), nn.Tanh(), nn.Linear(64, 2))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-2)
losses = []
for step in range(150):
    x = torch.rand(128, 3)
    y = 0.01 * x.sum(1)
    mean, log_scale = net(x).unbind(-1)
    nll = -Normal(mean, log_scale.clamp(-7, 2).exp()).log_prob(y).mean()
    optimizer.zero_grad()
    nll.backward()
    optimizer.step()
    losses.append(nll.item())
print("ok", losses[0] > 0 > losses[-1])
