import torch
from torch import nn

torch.manual_seed(0)


class BinaryAutoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(16, 6)
        self.decoder = nn.Linear(6, 16)

    def forward(self, x):
        bits = (torch.sigmoid(self.encoder(x)) > 0.5).float()  # CAUSE
        return self.decoder(bits)


model = BinaryAutoencoder()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(3):
    x = torch.rand(20, 16)
    loss = nn.functional.binary_cross_entropy_with_logits(model(x), x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print("encoder grad", model.encoder.weight.grad)
