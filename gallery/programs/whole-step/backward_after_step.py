import torch
from torch import nn

torch.manual_seed(0)
lstm = nn.LSTM(3, 6, batch_first=True)
head = nn.Linear(6, 1)
optimizer = torch.optim.Adam([*lstm.parameters(), *head.parameters()], lr=0.01)
before = head.weight.detach().clone()
for _ in range(4):
    x = torch.randn(5, 7, 3)
    out, _ = lstm(x)
    loss = nn.functional.mse_loss(head(out[:, -1]), x.sum((1, 2))[:, None])
    optimizer.zero_grad()
    optimizer.step()  # CAUSE
    loss.backward()  # CAUSE
print("moved", not torch.equal(before, head.weight))
