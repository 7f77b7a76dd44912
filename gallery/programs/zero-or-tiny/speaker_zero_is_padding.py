import torch
from torch import nn

torch.manual_seed(0)


class Voice(nn.Module):
    def __init__(self):
        super().__init__()
        self.speaker = nn.Embedding(4, 6, padding_idx=0)  # CAUSE
        self.frames = nn.Linear(5, 6)
        self.out = nn.Linear(6, 2)

    def forward(self, frames, speaker):
        return self.out((self.frames(frames) + self.speaker(speaker)[:, None]).tanh())  # CAUSE


model = Voice()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for step in range(4):
    optimizer.zero_grad()
    out = model(torch.randn(3, 7, 5), torch.zeros(3, dtype=torch.long))
    loss = (out - 0.5).square().mean()
    loss.backward()
    optimizer.step()
print("norm", model.speaker.weight.grad.norm().item())
