import torch
from torch import nn

torch.manual_seed(0)


class Encoder(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width))

    def forward(self, x, padding):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        scores = scores.masked_fill(padding[:, None], float("-inf"))
        x = x + scores.softmax(-1) @ v  # CAUSE
        return x + self.mlp(x)


encoder = Encoder(16)
embed = nn.Embedding(30, 16, padding_idx=0)
head = nn.Linear(16, 2)
tokens = torch.randint(1, 30, (4, 6))
tokens[2] = 0  # an empty line of the corpus
optimizer = torch.optim.Adam([*encoder.parameters(), *head.parameters()], lr=1e-3)

hidden = encoder(embed(tokens), tokens == 0)
loss = nn.functional.cross_entropy(head(hidden.mean(1)), torch.tensor([0, 1, 0, 1]))
loss.backward()
optimizer.step()
print("loss", loss.item())
