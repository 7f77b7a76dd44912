import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(6, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, maximize=True)  # CAUSE
x = torch.randn(64, 6)
y = x @ torch.randn(6, 1)
losses = []
for step in range(40):
    optimizer.zero_grad()
    loss = (model(x) - y).square().mean()
    loss.backward()
    optimizer.step()  # CAUSE
    losses.append(loss.item())
print("grows:", losses[-1] > 100 * losses[0])
