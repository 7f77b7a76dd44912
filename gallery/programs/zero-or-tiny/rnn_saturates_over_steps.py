import torch
from torch import nn

torch.manual_seed(0)


class Elman(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.into = nn.Linear(3, width)
        self.recur = nn.Linear(width, width, bias=False)
        self.out = nn.Linear(width, 1)
        nn.init.normal_(self.recur.weight, std=3.0)

    def forward(self, x):
        state = x.new_zeros(x.shape[0], self.recur.in_features)
        states = []
        for t in range(x.shape[1]):
            state = torch.tanh(self.into(x[:, t]) + self.recur(state))  # CAUSE
            states.append(state)
        return self.out(torch.stack(states, 1)), state


model = Elman(24)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for step in range(4):
    x = torch.randn(16, 10, 3) * 0.3
    out, state = model(x)
    loss = (out - x.cumsum(1)[..., :1]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(f"last state at the rim {(state.abs() > 0.98).float().mean():.2f}")
