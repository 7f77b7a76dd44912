import torch
from torch import nn

torch.manual_seed(0)
gru, head = nn.GRU(3, 8, batch_first=True), nn.Linear(8, 1)
optimizer = torch.optim.Adam([*gru.parameters(), *head.parameters()])
state, chunks = None, 0
for chunk in torch.randn(2, 40, 3).split(10, 1):
    out, state = gru(chunk, state)
    loss = (head(out) - chunk[..., :1]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    state = state.detach()
    chunks += 1
print("chunks", chunks)
