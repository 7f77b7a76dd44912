import warnings

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

warnings.filterwarnings("ignore")
torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU())
        self.head = nn.Linear(4, 3)

    def forward(self, image):
        x = checkpoint(self.stem, image, use_reentrant=True)  # CAUSE
        return self.head(x.mean((2, 3)))


net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
loss = nn.functional.cross_entropy(net(torch.randn(2, 1, 8, 8)), torch.tensor([0, 2]))
optimizer.zero_grad()
loss.backward()
optimizer.step()
print("first block:", net.stem[0].weight.grad)
