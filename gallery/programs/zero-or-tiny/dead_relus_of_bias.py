import torch
from torch import nn

torch.manual_seed(0)


class SparseAutoencoder(nn.Module):
    def __init__(self, width, code):
        super().__init__()
        self.encode = nn.Linear(width, code)
        self.decode = nn.Linear(code, width)
        nn.init.constant_(self.encode.bias, -8.0)

    def forward(self, x):
        code = torch.relu(self.encode(x))  # CAUSE
        return self.decode(code), code


model = SparseAutoencoder(6, 24)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(4):
    x = torch.rand(32, 6)
    out, code = model(x)
    loss = nn.functional.mse_loss(out, x) + 1e-3 * code.abs().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("encoder grad", model.encode.weight.grad.norm().item())
