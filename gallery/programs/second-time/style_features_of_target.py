import torch
from torch import nn

torch.manual_seed(0)
vgg = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 6, 3))


def gram(x):
    f = x.flatten(2)
    return f @ f.transpose(1, 2) / f.shape[-1]


style = gram(vgg(torch.rand(1, 3, 12, 12)))  # CAUSE
image = torch.rand(1, 3, 12, 12, requires_grad=True)
optimizer = torch.optim.Adam([image], lr=0.05)
for _ in range(3):
    loss = (gram(vgg(image)) - style).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
