import torch
from torch import nn

torch.manual_seed(0)


class Gate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.mix = nn.Linear(width, width)
        self.gate = nn.Linear(width, width)

    def forward(self, x):
        gate = torch.sigmoid(self.gate(x))
        gate += 0.1  # CAUSE
        return x + gate * self.mix(x)


net = nn.Sequential(Gate(8), Gate(8), nn.Linear(8, 1))
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for batch in torch.randn(3, 16, 8):
    optimizer.zero_grad()
    loss = net(batch).pow(2).mean()
    loss.backward()
    optimizer.step()
