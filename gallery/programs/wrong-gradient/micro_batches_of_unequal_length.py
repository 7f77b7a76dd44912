import torch
from torch import nn
import torch.nn.functional as F


class CausalLM(nn.Module):
    def __init__(self, vocab=40, width=24):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.rnn = nn.LSTM(width, width, batch_first=True)
        self.head = nn.Linear(width, vocab)

    def forward(self, tokens, labels):
        logits = self.head(self.rnn(self.embed(tokens))[0])
        return F.cross_entropy(
            logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100
        )


def sample(length, total=32):
    tokens = torch.randint(0, 40, (1, total))
    labels = tokens.clone()
    labels[:, length:] = -100
    return tokens, labels


torch.manual_seed(0)
model = CausalLM()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
micro = [sample(length) for length in (31, 3, 4, 28)]

optimizer.zero_grad()
for tokens, labels in micro:
    loss = model(tokens, labels) / len(micro)  # CAUSE
    loss.backward()
ours = torch.cat([p.grad.flatten() for p in model.parameters()])

full = model(torch.cat([t for t, _ in micro]), torch.cat([y for _, y in micro]))
right = torch.autograd.grad(full, list(model.parameters()))
right = torch.cat([g.flatten() for g in right])
print(f"error {((ours - right).norm() / right.norm()).item():.2f}")
optimizer.step()
