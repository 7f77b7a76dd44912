import torch
from torch import nn

torch.manual_seed(0)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 16, batch_first=True)
        self.head = nn.Linear(16, 2)
        for weight in self.lstm.parameters():
            nn.init.normal_(weight, std=6.0)  # CAUSE

    def forward(self, x):
        states, _ = self.lstm(x)  # CAUSE
        return self.head(states[:, -1])


model = Reader()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
x = torch.randn(32, 12, 4)
y = (x[:, -1, 0] > 0).long()
for step in range(4):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
with torch.no_grad():
    states, _ = model.lstm(x)
gates = torch.sigmoid(x[:, 0] @ model.lstm.weight_ih_l0.T + model.lstm.bias_ih_l0)
print(f"gates at the rim {((gates - 0.5).abs() > 0.49).float().mean():.2f}")
