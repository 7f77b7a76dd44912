import torch
from torch import nn

torch.manual_seed(0)
lstm = nn.LSTM(5, 12, batch_first=True)
head = nn.Linear(12, 1)
optimizer = torch.optim.Adam([*lstm.parameters(), *head.parameters()], lr=1e-2)
series = torch.randn(4, 60, 5)
target = series.sum(-1, keepdim=True)

state = (torch.zeros(1, 4, 12), torch.zeros(1, 4, 12))
for start in range(0, 60, 20):
    chunk = series[:, start : start + 20]
    out, state = lstm(chunk, state)  # CAUSE
    loss = nn.functional.mse_loss(head(out), target[:, start : start + 20])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
