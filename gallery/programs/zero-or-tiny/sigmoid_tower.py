import torch
from torch import nn

torch.manual_seed(0)


class Tower(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(20, 20) for _ in range(depth))
        self.out = nn.Linear(20, 3)

    def forward(self, x):
        for layer in self.layers:
            x = torch.sigmoid(layer(x))  # CAUSE
        return self.out(x)


model = Tower(12)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
x, y = torch.randn(64, 20), torch.randint(3, (64,))
for step in range(3):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
print(f"first layer {model.layers[0].weight.grad.norm():.7f}")
print(f"last layer {model.out.weight.grad.norm():.7f}")
