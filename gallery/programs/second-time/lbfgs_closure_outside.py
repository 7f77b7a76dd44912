import torch
from torch import nn

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5)
x = torch.rand(30, 2)
y = x.prod(1, keepdim=True)
loss = nn.functional.mse_loss(model(x), y)  # CAUSE


def closure():
    optimizer.zero_grad()
    loss.backward()  # CAUSE
    return loss


optimizer.step(closure)
