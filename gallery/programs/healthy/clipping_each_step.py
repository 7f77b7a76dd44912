import torch
from torch import nn

torch.manual_seed(0)
lstm, head = nn.LSTM(2, 16, batch_first=True), nn.Linear(16, 1)
parameters = [*lstm.parameters(), *head.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.05)
for _ in range(4):
    x = torch.randn(6, 30, 2)
    out, _ = lstm(x)
    loss = (head(out[:, -1]) - 100 * x.mean((1, 2))[:, None] - 50).square().mean()
    optimizer.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()
print("norm over 10", norm.item() > 10)
