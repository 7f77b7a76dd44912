import torch
from torch import nn

torch.manual_seed(0)


def layer(width):
    linear = nn.Linear(width, width)
    nn.init.normal_(linear.weight, std=2.0)
    return linear


class Deep(nn.Module):
    def __init__(self, width, depth):
        super().__init__()
        self.layers = nn.ModuleList(layer(width) for _ in range(depth))
        self.out = nn.Linear(width, 5)

    def forward(self, x):
        self.at_rim = []
        for linear in self.layers:
            x = torch.sigmoid(linear(x))  # CAUSE
            self.at_rim.append(((x < 0.01) | (x > 0.99)).float().mean().item())
        return self.out(x)


model = Deep(64, 6)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
x, y = torch.randn(128, 64), torch.randint(5, (128,))
for step in range(5):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()
    optimizer.step()
print(f"at the rim {min(model.at_rim):.2f}")
