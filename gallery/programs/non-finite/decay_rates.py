import torch
from torch import nn

torch.manual_seed(0)


class Decay(nn.Module):
    def __init__(self, width):
        super().__init__()
        rates = torch.linspace(0.0, 1.0, width)
        self.log_rates = nn.Parameter(rates.log())  # CAUSE
        self.mix = nn.Linear(width, width)

    def forward(self, x):
        state = torch.zeros(x.shape[0], x.shape[2])
        for t in range(x.shape[1]):
            state = self.mix(state) - self.log_rates * x[:, t]
        return state


model = Decay(8)
out = model(torch.randn(4, 5, 8))
loss = out.square().mean()
loss.backward()
print("loss", loss.item())
