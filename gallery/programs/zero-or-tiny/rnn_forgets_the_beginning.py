import torch
from torch import nn

torch.manual_seed(0)


class Elman(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(12, 8)
        self.start = nn.Parameter(torch.randn(8))
        self.mix = nn.Linear(16, 8)
        self.out = nn.Linear(8, 12)

    def forward(self, tokens):
        state = self.start.expand(tokens.shape[0], 8)
        for t in range(tokens.shape[1]):
            state = torch.tanh(self.mix(torch.cat([self.embed(tokens[:, t]), state], -1)))  # CAUSE
        return self.out(state)


model = Elman()
optimizer = torch.optim.Adam(model.parameters())
tokens = torch.randint(12, (6, 200))
loss = nn.functional.cross_entropy(model(tokens), tokens[:, 0])
loss.backward()
optimizer.step()
print(f"first token {model.start.grad.norm().item():.12f}")
