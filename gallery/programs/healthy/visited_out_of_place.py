import torch
from torch import nn

torch.manual_seed(0)
WIDTH = 24
embed, cell = nn.Linear(2, WIDTH), nn.GRUCell(WIDTH, WIDTH)
query, key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
params = [p for m in (embed, cell, query, key) for p in m.parameters()]
optimizer = torch.optim.Adam(params, lr=1e-3)
for step in range(6):
    cities = torch.rand(16, 5, 2)
    nodes = torch.tanh(embed(cities))
    state = choice = nodes.mean(1)
    rows = torch.arange(16)
    visited = torch.zeros(16, 5, dtype=torch.bool)
    total, tour = 0, []
    for _ in range(5):
        state = cell(choice, state)
        scores = (key(nodes) @ query(state)[:, :, None]).squeeze(-1)
        log_p = scores.masked_fill(visited, float("-inf")).log_softmax(-1)
        pick = torch.multinomial(log_p.detach().exp(), 1).squeeze(1)
        total = total + log_p[rows, pick]
        visited = visited | nn.functional.one_hot(pick, 5).bool()
        choice = nodes[rows, pick]
        tour.append(cities[rows, pick])
    path = torch.stack(tour, 1)
    length = (path - path.roll(1, 1)).norm(dim=-1).sum(1)
    loss = ((length - length.mean()) * total).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("ok", all(p.grad.isfinite().all() for p in params))
