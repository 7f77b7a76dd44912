import torch
from torch import nn

torch.manual_seed(0)
encoder = nn.GRU(4, 8, batch_first=True)
score = nn.Linear(8, 1)
temperature = nn.Parameter(torch.tensor(0.5))
bias = nn.Parameter(torch.zeros(1))
optimizer = torch.optim.Adam([*encoder.parameters(), *score.parameters(), temperature, bias])

out = []
for length in (3, 5, 9):
    hidden, _ = encoder(torch.randn(1, length, 4))
    out.append(score(hidden[:, -1]).squeeze() / temperature)
logits = torch.tensor([float(o) for o in out])  # CAUSE
loss = nn.functional.cross_entropy((logits + bias)[None], torch.tensor([1]))
loss.backward()
optimizer.step()
print("temperature", temperature.grad)
