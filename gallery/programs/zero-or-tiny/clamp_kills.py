import torch
from torch import nn

torch.manual_seed(0)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 6, 3, padding=1)
        self.out = nn.Conv2d(6, 1, 3, padding=1)

    def forward(self, noisy):
        h = self.conv(noisy).relu()
        return (noisy + self.out(h)).clamp(0, 1)  # CAUSE


model = Denoiser()
optimizer = torch.optim.Adam(model.parameters())
clean = torch.randint(100, 256, (2, 1, 12, 12)).float()
noisy = clean + torch.randn_like(clean)
loss = nn.functional.mse_loss(model(noisy), clean)
loss.backward()
optimizer.step()
print("out grad", model.out.weight.grad.abs().max().item())
