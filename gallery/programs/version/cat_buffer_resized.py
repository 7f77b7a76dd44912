import torch
from torch import nn

torch.manual_seed(0)


class Decoder(nn.Module):
    def __init__(self, width, length):
        super().__init__()
        self.key, self.query = nn.Linear(width, width), nn.Linear(width, width)
        self.length = length

    def forward(self, x):
        cache = torch.zeros(x.shape[0], self.length, x.shape[-1])
        out = []
        for t in range(self.length):
            cache[:, t] = self.key(x[:, t])  # CAUSE
            scores = (cache * self.query(x[:, t])[:, None]).sum(-1)
            out.append(scores.softmax(-1)[:, t])
        return torch.stack(out, 1)


model = Decoder(6, 4)
loss = -model(torch.randn(3, 4, 6)).clamp(min=1e-6).log().mean()
loss.backward()
