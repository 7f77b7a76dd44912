import torch
from torch import nn

torch.manual_seed(0)
encode, decode = nn.Linear(6, 4), nn.Linear(2, 6)
optimizer = torch.optim.Adam([*encode.parameters(), *decode.parameters()], lr=1e-2)
before = encode.weight[2:].detach().clone()
for step in range(6):
    x = torch.randn(12, 6)
    mean, logvar = encode(x).chunk(2, -1)
    z = mean + (0.5 * logvar).exp() * torch.randn_like(mean)
    kl = 0.5 * (mean**2 + logvar.exp() - 1 - logvar).sum(-1).mean()
    loss = (decode(z) - x).square().mean() + min(1.0, step / 4) * kl
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("logvar moved", not torch.equal(before, encode.weight[2:]))
