import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
VOCAB = 30
embed, rnn, head = nn.Embedding(VOCAB, 24), nn.GRU(24, 24, batch_first=True), nn.Linear(24, VOCAB)
params = [*embed.parameters(), *rnn.parameters(), *head.parameters()]
optimizer = torch.optim.AdamW(params, lr=1e-2)
losses = []
for step in range(12):
    micro = []
    for length in (20, 3, 12, 7):
        tokens = torch.randint(0, VOCAB, (1, 1)) + torch.arange(24)[None]
        labels = (tokens % VOCAB).clone()
        labels[:, length:] = -100
        micro.append((tokens % VOCAB, labels))
    count = sum((labels[:, 1:] != -100).sum() for _, labels in micro)
    optimizer.zero_grad()
    total = 0.0
    for tokens, labels in micro:
        logits = head(rnn(embed(tokens))[0])[:, :-1]
        loss = (
            F.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), reduction="sum") / count
        )
        loss.backward()
        total += loss.item()
    nn.utils.clip_grad_norm_(params, 1.0)
    optimizer.step()
    losses.append(total)
print("ok", losses[-1] < losses[0])
