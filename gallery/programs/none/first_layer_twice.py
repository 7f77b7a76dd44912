import torch
from torch import nn

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(8, 8)
        self.fc2 = nn.Linear(8, 8)
        self.out = nn.Linear(8, 2)

    def forward(self, x):
        x = self.fc1(x).relu()
        x = self.fc1(x).relu()  # CAUSE
        return self.out(x)


model = Net()
optimizer = torch.optim.Adam(model.parameters())
for step in range(3):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(torch.randn(6, 8)), torch.randint(0, 2, (6,)))
    loss.backward()
    optimizer.step()
print("fc2", model.fc2.weight.grad)
